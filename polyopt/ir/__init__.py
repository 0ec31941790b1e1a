"""The values between the steps of the compiler: frozen, printable, each with a structural verifier."""
