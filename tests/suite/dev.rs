//! TODO(dev)
