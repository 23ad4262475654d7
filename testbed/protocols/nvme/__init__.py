"""NVMe over TCP: the host and the controller of NVM Express over Fabrics, as protocol cores without I/O."""
