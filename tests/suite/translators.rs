//! TODO(translators)
