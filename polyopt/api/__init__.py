"""What users call: compile and load models, schedule loop nests and operators, register operators. Thin over the pipeline and the verbs."""

from polyopt.frontends.python_loops import local, scop

from .models import LoadedModel, Model, compile, load
from .operators import op, register_op
from .schedules import Schedule, auto, schedule

__all__ = ["LoadedModel", "Model", "Schedule", "auto", "compile", "load", "local", "op", "register_op", "schedule", "scop"]
