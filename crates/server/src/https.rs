//! `sekisho serve --https`: with a name a certificate is ordered for it; without one there is a certificate authority
//! of this machine's own, made on first use, and a certificate from it for this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sekisho_net::clock::unix_time;
use sekisho_net::tls::certificate::Certificate;

use crate::certificates::write_state;
use crate::cli::Bind;
use crate::terminal::tell;
use crate::{Problem, setup};

/// The default authority for certificates.
const AUTHORITY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Where Debian and its relatives look for authorities that an administrator trusts.
const TRUSTED: &str = "/usr/local/share/ca-certificates/sekisho.crt";
const AUTHORITY_LIFE: Duration = Duration::from_hours(24 * 3650);
/// Clients reject longer lifetimes even from a locally trusted authority.
const CERTIFICATE_LIFE: Duration = Duration::from_hours(24 * 397);
/// Clocks differ.
const BEFORE: Duration = Duration::from_hours(24);

/// How a folder is served.
#[derive(Debug)]
pub(crate) enum Https {
    /// In the clear.
    Off,
    /// With a certificate of this machine's own authority: certificate with key, and the authority.
    Local(PathBuf, PathBuf),
    /// With one that is ordered for this name.
    Named(Order),
    /// With this certificate and key.
    Given(PathBuf, PathBuf),
}

/// What is ordered.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) uri: String,
    pub(crate) root: Option<PathBuf>,
    pub(crate) state: PathBuf,
}

impl Https {
    /// The HTTPS settings of the command line.
    pub(crate) fn of(bind: &Bind) -> Result<Self, Problem> {
        if let (Some(certificate), Some(key)) = (&bind.certificate, &bind.key) {
            let whole = |path: &Path| {
                std::path::absolute(path)
                    .and_then(|path| std::fs::metadata(&path).map(|_| path))
                    .map_err(|error| Problem::new(format_args!("{}: {error}", path.display())))
            };
            return Ok(Self::Given(whole(certificate)?, whole(key)?));
        }
        let Some(name) = bind.https.clone() else { return Ok(Self::Off) };
        let data = data_folder()?;
        if name.is_empty() {
            let (certificate, authority) = local(&data, bind)?;
            return Ok(Self::Local(certificate, authority));
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        let is_name = name.contains('.') && name.bytes().all(is_part);
        if !is_name || name.parse::<IpAddr>().is_ok() {
            return Err(Problem::new(format_args!(
                "--https {name}: certificates are ordered for public names such as example.org; \
                 without a name this machine's own authority is used"
            )));
        }
        let uri = bind.acme_directory.clone().unwrap_or_else(|| AUTHORITY.to_owned());
        let root = bind.acme_root.clone();
        Ok(Self::Named(Order { name, uri, root, state: data.join("acme") }))
    }

    /// Prints what the operator should know.
    pub(crate) fn tell(&self) {
        match self {
            Self::Off | Self::Given(..) => {}
            Self::Local(_, authority) => tell(format_args!(
                "Trust its certificates once: sekisho trust (or: sudo cp {} {TRUSTED} && sudo update-ca-certificates; \
                 browsers: import that file as an authority).\n",
                authority.display()
            )),
            Self::Named(order) => tell(format_args!(
                "The certificate for {} is ordered from {}; with this command you accept its terms.\n",
                order.name, order.uri
            )),
        }
    }
}

/// `sekisho trust`: installs this machine's authority where programs look for authorities.
pub(crate) fn trust() -> Result<ExitCode, Problem> {
    let data = data_folder()?;
    let (authority, key_file) = (data.join("ca.pem"), data.join("ca.key"));
    if !authority.exists() || !key_file.exists() {
        make_authority(&authority, &key_file)
            .map_err(|error| Problem::new(format_args!("{}: {error}", data.display())))?;
    }
    let commands = format!("cp {} {TRUSTED} && update-ca-certificates", authority.display());
    if !crate::user::is_root() {
        tell(format_args!(
            "Only root can do this: sudo sh -c '{commands}'\n\
             Browsers with authorities of their own: import {}.\n",
            authority.display()
        ));
        return Ok(ExitCode::FAILURE);
    }
    let done = std::fs::create_dir_all(Path::new(TRUSTED).parent().unwrap_or(Path::new("/")))
        .and_then(|()| std::fs::copy(&authority, TRUSTED))
        .and_then(|_| Command::new("update-ca-certificates").stdout(Stdio::null()).status());
    match done {
        Ok(status) if status.success() => {
            tell(format_args!("{} is trusted by this machine.\n", authority.display()));
            Ok(ExitCode::SUCCESS)
        }
        Ok(status) => Err(Problem::new(format_args!("update-ca-certificates: {status}"))),
        Err(error) => Err(Problem::new(format_args!("{commands}: {error}"))),
    }
}

/// The folder for keys and certificates that are made on first use.
fn data_folder() -> Result<PathBuf, Problem> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let data = from("XDG_DATA_HOME").or_else(|| Some(from("HOME")?.join(".local/share")));
    let data = data.or_else(|| crate::user::is_root().then(|| PathBuf::from("/var/lib")));
    data.map(|data| data.join("sekisho")).ok_or_else(|| {
        Problem::new("--https: neither XDG_DATA_HOME nor HOME says where to keep keys")
    })
}

/// The certificate of this machine, made anew at each start, and the authority, made once.
fn local(data: &Path, bind: &Bind) -> Result<(PathBuf, PathBuf), Problem> {
    let failed = |error: &dyn std::fmt::Display| {
        Problem::new(format_args!("--https: no certificate in {}: {error}", data.display()))
    };
    let (authority, key_file) = (data.join("ca.pem"), data.join("ca.key"));
    let known =
        std::fs::read_to_string(&authority).ok().zip(std::fs::read_to_string(&key_file).ok());
    let issuer = known.and_then(|(pem, key)| {
        let key = KeyPair::from_pem(&key).ok()?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let subject = Certificate::parse(&der)?.subject;
        Some(Issuer::new(authority_params(subject.strip_prefix("CN=")?), key))
    });
    let issuer = match issuer {
        Some(issuer) => issuer,
        None => make_authority(&authority, &key_file).map_err(|error| failed(&error))?,
    };
    let certificate = data.join("localhost.pem");
    let pem = make_certificate(&issuer, names(bind)).map_err(|error| failed(&error))?;
    write_state(&certificate, pem.as_bytes()).map_err(|error| failed(&error))?;
    Ok((certificate, authority))
}

type Failure = Box<dyn std::error::Error>;

fn make_authority(file: &Path, key_file: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let key = KeyPair::generate()?;
    // What would have to be escaped in a name is left out.
    let is_plain = |it: &char| it.is_ascii_alphanumeric() || ".-".contains(*it);
    let machine: String = setup::hostname().chars().filter(is_plain).collect();
    let params = authority_params(&format!("Sekisho on {machine}"));
    let made = params.self_signed(&key)?;
    // The key first: an authority without one would be made anew.
    write_state(key_file, key.serialize_pem().as_bytes())?;
    write_state(file, made.pem().as_bytes())?;
    Ok(Issuer::new(params, key))
}

/// An authority for certificates of servers alone: none that could sign others.
fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_life(&mut params, AUTHORITY_LIFE);
    params
}

/// Certificate and key in one file.
fn make_certificate(
    issuer: &Issuer<'_, KeyPair>,
    names: Vec<String>,
) -> Result<String, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = called("localhost");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    set_life(&mut params, CERTIFICATE_LIFE);
    let made = params.signed_by(&key, issuer)?;
    Ok(format!("{}{}", made.pem(), key.serialize_pem()))
}

fn called(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

fn set_life(params: &mut CertificateParams, life: Duration) {
    let zero = rcgen::date_time_ymd(1970, 1, 1);
    let now = unix_time();
    params.not_before = zero + now.saturating_sub(BEFORE);
    params.not_after = zero + (now.saturating_sub(BEFORE) + life);
}

/// What this machine is called, and its addresses.
fn names(bind: &Bind) -> Vec<String> {
    let mut all = vec!["localhost".to_owned(), setup::hostname()];
    all.extend(bind.host.iter().cloned());
    let tables = ["/proc/net/fib_trie", "/proc/net/if_inet6"]
        .map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    let addresses = loopback.into_iter().chain(ipv4(&tables[0])).chain(ipv6(&tables[1]));
    all.extend(addresses.map(|address| address.to_string()));
    let is_name = |name: &String| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte))
    };
    all.retain(is_name);
    all.sort_unstable();
    all.dedup();
    all
}

/// The addresses of the kernel's own table of routes: a line with an address, then one that says what it is.
fn ipv4(table: &str) -> Vec<IpAddr> {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let local = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    let found = local.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok());
    found.map(IpAddr::from).collect()
}

/// 32 digits, then what it is; link-local addresses are left out, as a URL cannot name them.
fn ipv6(table: &str) -> Vec<IpAddr> {
    let digits = table.lines().filter_map(|line| line.split_whitespace().next());
    let found = digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok());
    let found = found.map(Ipv6Addr::from_bits).filter(|it| !it.is_unicast_link_local());
    found.map(IpAddr::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_addresses_are_found_in_the_kernels_tables() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(ipv4(table), [IpAddr::from([10, 0, 0, 5])]);
        let table = "00000000000000000000000000000001 01 80 10 80 lo\nfe800000000000000000000000000001 02 40 20 80 eth0\n";
        assert_eq!(ipv6(table), [IpAddr::from(Ipv6Addr::LOCALHOST)]);
    }
}
