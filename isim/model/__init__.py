"""Model profiles: published figures, the catalogue, and exact arithmetic on them. Imports isim.record only."""
