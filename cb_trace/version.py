"""The version, where both halves can read it without importing the package root."""

VERSION = "0.1.0"
