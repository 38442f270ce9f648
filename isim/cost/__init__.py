"""How long things take and what fits in memory, with provenance (pure). Imports model, presets and record."""
