//! The `stream` block: what it means, and what is wrong with it.
#![forbid(unsafe_code)]

use std::time::Duration;

use sekisho_config::{Config, ListenAddress, Memory, Options, PassTo, load};

fn outcome(text: &str) -> (Option<Config>, String) {
    let outcome = load("/c.conf".as_ref(), &Options::new("/"), &Memory::of("/c.conf", text));
    let said = outcome.reports.iter().map(|report| report.render(false)).collect();
    (outcome.config, said)
}

fn config(text: &str) -> Config {
    let (config, said) = outcome(text);
    config.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn the_block_is_a_configuration_of_its_own() {
    let config = config(
        "http { map $uri $x { default a; } upstream u { server 127.0.0.1:1; } server { listen 80; } }
         stream {
           map $protocol $x { default b; }
           upstream u { hash $remote_addr; server 127.0.0.1:2 weight=2; server 127.0.0.1:3; }
           proxy_timeout 7s; proxy_connect_timeout 8s;
           server { listen 81; proxy_pass u; proxy_half_close on; }
           server { listen 127.0.0.1:53 udp; proxy_pass $x:53; proxy_responses 1; proxy_timeout 9s; }
         }",
    );
    assert_eq!((config.http.maps.len(), config.http.upstreams.len()), (1, 1));
    let stream = config.stream.as_deref().expect("a block");
    assert_eq!((stream.http.maps.len(), stream.http.upstreams.len()), (1, 1));
    assert_eq!(stream.http.upstreams[0].servers.len(), 2);
    let addresses: Vec<&ListenAddress> = config.listens().map(|listen| &listen.address).collect();
    assert!(matches!(
        addresses[..],
        [ListenAddress::Tcp(_), ListenAddress::Tcp(_), ListenAddress::Udp(_)]
    ));
    let roots: Vec<_> = stream.http.locations.iter().map(|root| &root.settings).collect();
    let [first, second] = roots[..] else { panic!("two servers") };
    let settings = first.stream.as_deref().expect("of stream");
    assert_eq!((settings.timeout, settings.half_close), (Some(Duration::from_secs(7)), true));
    let pass = first.pass.as_deref().expect("it is passed on");
    assert!(matches!(&pass.to, PassTo::Named(to) if to.group.0 == 0));
    assert_eq!(pass.forward.connect_timeout, Some(Duration::from_secs(8)));
    let settings = second.stream.as_deref().expect("of stream");
    assert_eq!(settings.timeout, Some(Duration::from_secs(9)));
    assert_eq!((settings.responses_max, settings.requests_max), (Some(1), None));
    assert!(matches!(second.pass.as_deref().map(|pass| &pass.to), Some(PassTo::Computed(_))));
    assert!(first.access_logs.is_empty(), "nothing is logged where nothing is said");
    assert!(stream.http.listens.iter().all(|listen| listen.options.deferred == Some(false)));
}

#[test]
fn mistakes_are_told_with_their_place() {
    let table = [
        ("server { proxy_pass 127.0.0.1:1; }", "no \"listen\" is defined"),
        ("server { listen 81; }", "no handler for this server"),
        ("server { listen 81; return x; proxy_pass 127.0.0.1:1; }", "exclude each other"),
        ("server { listen 127.0.0.1; return x; }", "no port in \"127.0.0.1\""),
        (
            "server { listen 81 udp ssl; return x; }",
            "\"ssl\" parameter is incompatible with \"udp\"",
        ),
        ("server { listen 81 http2; return x; }", "invalid parameter \"http2\""),
        ("server { listen 81 udp bogus; return x; }", "invalid parameter \"bogus\""),
        ("server { listen 81; proxy_pass 127.0.0.1; }", "no port in upstream"),
        ("upstream u { server 127.0.0.1; }", "no port in upstream"),
        ("server { listen 81; proxy_pass $uri; }", "unknown \"uri\" variable"),
        (
            "server { listen 81; location / { } return x; }",
            "\"location\" directive is not allowed here",
        ),
        (
            "server { listen 81; access_log /x combined; return x; }",
            "unknown log format \"combined\"",
        ),
        ("server { listen 80; return x; }", "\"http\" and \"stream\" both listen on 0.0.0.0:80"),
        ("server { listen 81 ssl; return x; }", "no \"ssl_certificate\" is defined"),
        ("server { listen 81; return x; limit_conn none 1; }", "none"),
    ];
    for (body, expected) in table {
        let text = format!("http {{ server {{ listen 80; }} }} stream {{ {body} }}");
        let (config, said) = outcome(&text);
        assert!(config.is_none() && said.contains(expected), "{body}: {said}");
    }
    let (config, said) = outcome("stream { } stream { }");
    assert!(config.is_none() && said.contains("\"stream\" directive is duplicate"), "{said}");
    let (config, said) = outcome("http { server { listen 80; proxy_timeout 1s; } }");
    assert!(config.is_none() && said.contains("not allowed here"), "{said}");
}
