//! `stockade run`: what a workload can see, reach, use up and leave behind, and what the report says about it.

#[path = "../common/mod.rs"]
mod common;

mod bare;
mod budget;
mod degrade;
mod denials;
mod egress;
mod ending;
mod guards;
mod identity;
mod isolation;
mod landlock;
mod landlock_reach;
mod learned;
mod lifecycle;
mod mounts;
mod nested;
mod network;
mod observed;
mod places;
mod report;
mod rules;
mod runtimes;
mod servers;
mod sessions;
mod sources;
mod steps;
mod streams;
mod terminal;
mod toolchains;
mod why;
mod workloads;
