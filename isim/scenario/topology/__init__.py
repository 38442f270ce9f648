"""The topology scenario, schema revision 5: machines, what lies on them, who talks to whom; tables and presets."""
