"""Cases of the independent reference implementation, compared with isim: one module for each part of the product."""
