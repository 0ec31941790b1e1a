"""What users call: compile and load models, schedule loop nests and operators, register operators. Thin over the pipeline and the verbs.

`polyopt` exports the names from their modules, each imported on first use: a model that was compiled before starts without the compiler.
"""
