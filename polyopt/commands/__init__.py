"""The commands of `polyopt`, one module each, thin over `polyopt.api`: arguments in, JSON or text on stdout, progress on
stderr."""
