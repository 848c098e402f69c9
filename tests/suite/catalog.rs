//! TODO(catalog)
