//! The shape of the workspace.
