"""Jobs that are killed at a named step: whatever a job makes durable is a step, and so is what comes between."""
