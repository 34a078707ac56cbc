"""A Kineto file becomes typed event tables: decoded natively, repaired where needed, linked."""
