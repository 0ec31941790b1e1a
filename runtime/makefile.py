"""The artifact's Makefile. Takes the C files with their flags; gives text that builds the library and the example with any gcc-like compiler."""

from __future__ import annotations

from collections.abc import Sequence

from .compiler import BASE_FLAGS, OPENMP_FLAG, SERIAL_FLAGS, Unit


def emit_makefile(prefix: str, units: Sequence[tuple[str, Unit]], *, openmp: bool) -> str:
    """`units`: (path without .c, unit). Every ISA file has its own flags; OpenMP can be left out with `make OPENMP=`."""
    objects = " ".join(f"{path}.o" for path, _ in units)
    common = [f for f in units[0][1].flags if f != OPENMP_FLAG and all(f in unit.flags for _, unit in units)]
    own = []
    for path, unit in units:
        flags = " ".join("$(OPENMP)" if f == OPENMP_FLAG else f for f in unit.flags if f not in common)
        if flags:
            own.append(f"{path}.o: UNIT = {flags}\n")
    text = _MAKEFILE.replace("@OPENMP@", _OPENMP if openmp else "")
    return (
        text.replace("@FLAGS@", " ".join([*BASE_FLAGS, *common])).replace("@OBJECTS@", objects).replace("@OWN@", "".join(own)).replace("@P@", prefix)
    )


_OPENMP = f"""# make OPENMP= builds for one thread
OPENMP = {OPENMP_FLAG}
SERIAL = $(if $(OPENMP),,{" ".join(SERIAL_FLAGS)})
"""

_MAKEFILE = """# Builds lib@P@.so and the example. CC may be any compiler that takes gcc's options; CFLAGS and LDFLAGS are added to ours.
# The flags in FLAGS are part of the meaning of the code: no contraction, no reassociation by the compiler.
FLAGS = @FLAGS@
@OPENMP@OBJECTS = @OBJECTS@

all: lib@P@.so example

lib@P@.so: $(OBJECTS)
	$(CC) -shared -Wl,-soname,$@ $(LDFLAGS) -o $@ $(OBJECTS) $(OPENMP) -lm

# every file with its own ISA flags: the entry has none, since it asks the CPU first
@OWN@
%.o: %.c
	$(CC) $(CFLAGS) $(FLAGS) $(UNIT) $(SERIAL) -c -o $@ $<

@P@.o: @P@.h

example: example.c @P@.h lib@P@.so
	$(CC) $(CFLAGS) $(FLAGS) $(LDFLAGS) -o $@ example.c lib@P@.so -Wl,-rpath,'$$ORIGIN' -lm

clean:
	rm -f $(OBJECTS) lib@P@.so example

.PHONY: all clean
"""
