//! The algorithms of a binary.

use crate::{
    algorithm::Algorithm,
    images::{Image, UnknownVersion, resolve},
    library::Library,
};

/// Built-in algorithms, by image and by name.
#[derive(Debug, Clone, Copy)]
pub struct Algorithms(&'static [&'static Algorithm]);

impl Algorithms {
    /// A table of algorithms, whose names and repositories differ.
    pub const fn new(algorithms: &'static [&'static Algorithm]) -> Self {
        Self(algorithms)
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = &'static Algorithm> {
        self.0.iter().copied()
    }

    /// The algorithm that an image stands for; `None` if it is of none.
    ///
    /// # Errors
    /// [`UnknownVersion`] lists the published versions when the repository is an algorithm's but
    /// the tag is not.
    pub fn resolve(self, image: &str) -> Result<Option<Image>, UnknownVersion> {
        resolve(self.0, image)
    }

    /// The libraries that they need, each once.
    pub fn libraries(self) -> Vec<&'static Library> {
        let mut libraries: Vec<&Library> = Vec::new();
        for library in self.iter().flat_map(|algorithm| algorithm.libraries) {
            if !libraries.iter().any(|known| known.name == library.name) {
                libraries.push(library);
            }
        }
        libraries
    }

    /// Runs the algorithm `name` on this instance; see [`Algorithm::run`]. Returns the process's
    /// exit code: 0 for success, 1 for a failure (reported on standard error and in the instance's
    /// failure file), 2 for an unknown `name`.
    pub fn run(self, name: &str) -> i32 {
        if let Some(algorithm) = self.named(name) {
            return (algorithm.run)();
        }
        let names: Vec<_> = self.iter().map(|algorithm| algorithm.name).collect();
        eprintln!("there is no built-in algorithm \"{name}\"; the built-in algorithms are: {}", names.join(", "));
        2
    }

    /// See [`Algorithm::prepare`].
    pub fn prepare(self, name: &str) {
        if let Some(algorithm) = self.named(name) {
            (algorithm.prepare)();
        }
    }

    fn named(self, name: &str) -> Option<&'static Algorithm> {
        self.iter().find(|algorithm| algorithm.name == name)
    }
}
