//! The parts of the host's `/etc` in the view.
//!
//! This is a list of names and not `/etc` without its secrets: programs keep passwords and tokens also in files that every user
//! may read (`npmrc`, `pip.conf`, `fstab`, `profile.d`), and more names come with every package. A name belongs here if a
//! program fails or gives another result without it, and if no package keeps a secret or a user's name there. A file or
//! directory that not every user may read is left out whatever its name.

/// Without the leading `/etc/`. A directory that exists costs every start a mount (some 25 µs), a file up to 16 KiB a copy, which
/// takes less.
pub const PARTS: &[&str] = &[
    // The loaders need them to find libraries outside their default path, the linker to find the libraries of libraries.
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld-musl-x86_64.path",
    "ld-musl-aarch64.path",
    // The system: its name, its time, its terminals, its choice among programs.
    "alternatives",
    "localtime",
    "lsb-release",
    "os-release",
    "redhat-release",
    // Names of the C library: services and protocols by number.
    "protocols",
    "services",
    // Certificates of Debian, Arch, SUSE and Alpine. They are listed one by one, because private keys are next to them.
    "ca-certificates/extracted",
    "gnutls",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    // Of Fedora and its derivatives.
    "crypto-policies",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    // On Fedora and Debian, Java finds its virtual machines and security settings through symlinks to these.
    "java",
    "java-8-openjdk",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "maven/m2.conf",
    // Interpreters: modules to load, paths, limits.
    "R",
    "emacs",
    "julia",
    "mono",
    "octave.conf",
    "octaverc",
    "perl",
    "php",
    "php.d",
    "php.ini",
    // Documents, fonts, pictures: catalogs, and what a converter may open (ImageMagick's policy).
    "ImageMagick-6",
    "ImageMagick-7",
    "asciidoc",
    "fonts",
    "ghostscript",
    "groff",
    "libreoffice",
    "man_db.conf",
    "manpath.config",
    "mime.types",
    "papersize",
    "texmf",
    "xml",
    // Browsers, drivers of computations and databases.
    "OpenCL",
    "chromium",
    "chromium.d",
    "odbcinst.ini",
    "openmpi",
];
