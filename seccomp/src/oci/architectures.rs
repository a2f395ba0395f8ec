//! The architectures that a profile names.

use super::Reader;
use stockade_json::{At, Error};

impl Reader<'_> {
    /// Checks the architectures. As in runc, the rules are always compiled for the running architecture. Calls of other
    /// architectures are always refused.
    pub(super) fn architectures(&mut self, root: &At) -> Result<(), Error> {
        let native = self.context.arch.oci_name();
        let (plain, map) = (root.get("architectures")?, root.get("archMap")?);
        let mut names = Vec::new();
        if let Some(list) = &plain {
            for arch in list.items()? {
                names.push(self.architecture(&arch)?);
            }
        }
        if let Some(list) = &map {
            let mut mains = Vec::new();
            for entry in list.items()? {
                let main = entry.get("architecture")?.ok_or_else(|| entry.lacks("architecture is missing"))?;
                let name = self.architecture(&main)?;
                if mains.contains(&name) {
                    return Err(main.wrong("already has an entry in archMap"));
                }
                mains.push(name);
                if let Some(subs) = entry.get("subArchitectures")? {
                    for sub in subs.items()? {
                        self.architecture(&sub)?;
                    }
                }
            }
            if !names.is_empty() && !mains.is_empty() {
                return Err(root.lacks("architectures and archMap are both given; remove one of them"));
            }
            names.append(&mut mains);
        }
        if !names.is_empty() && !names.iter().any(|name| name == native) {
            let at = if map.is_some() { map } else { plain };
            self.warn(&at.unwrap_or(*root), &format!("{native} is missing: the rules are applied to it nevertheless"))?;
        }
        Ok(())
    }

    fn architecture(&mut self, arch: &At) -> Result<String, Error> {
        const KNOWN: [&str; 22] = [
            "X86",
            "X86_64",
            "X32",
            "ARM",
            "AARCH64",
            "LOONGARCH64",
            "M68K",
            "MIPS",
            "MIPS64",
            "MIPS64N32",
            "MIPSEL",
            "MIPSEL64",
            "MIPSEL64N32",
            "PPC",
            "PPC64",
            "PPC64LE",
            "S390",
            "S390X",
            "PARISC",
            "PARISC64",
            "RISCV64",
            "SH",
        ];
        let name = arch.text()?;
        match name.strip_prefix("SCMP_ARCH_") {
            Some(short) if KNOWN.contains(&short) => {}
            _ => self.warn(arch, &format!("{name:?} is not a known architecture"))?,
        }
        Ok(name.to_owned())
    }
}
