"""Event columns become kernel_module rows: pure functions, one file a mechanism."""
