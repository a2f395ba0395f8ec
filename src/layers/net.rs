//! The network: an own namespace with only a loopback interface, or, by name, the caller's.

use super::{Applied, During};
use crate::error::Step;
use crate::plan::Network;
use crate::sys::ablate::{Layer, without};
use crate::sys::net;

/// Child half: brings `lo` up in a network namespace of our own.
pub fn apply(network: Network) -> Applied {
    match network {
        Network::None | Network::Loopback if without(Layer::NetworkNamespace) => Ok(()),
        Network::None | Network::Loopback => net::loopback_up().during(Step::Loopback, 0),
        Network::Host => Ok(()),
    }
}
