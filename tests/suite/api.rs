//! TODO(api)
