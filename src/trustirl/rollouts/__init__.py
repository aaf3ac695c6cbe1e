"""Policy x task -> measure."""
