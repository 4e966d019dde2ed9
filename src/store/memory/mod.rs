//! Memory.
/// S.
pub struct MemoryStore;
