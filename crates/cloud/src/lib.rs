//! The untrusted store as a service.
