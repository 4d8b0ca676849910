//! Agents: programs that deliver the readings of sensors to the hub.
