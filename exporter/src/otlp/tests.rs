//! Against real servers in this process: gRPC by tonic, HTTP by a socket that says what a test wants.

mod bed;
mod delivery;
mod failures;
mod judgement;
mod places;
mod secure;
