//! Which locations must have the whole body of a request before they pass it on: those whose heads, parameters, cache
//! keys or choice of a server depend on `$request_body` or `$request_body_file`.

use crate::model::{Http, PassTo, Settings, Template};
use crate::model::{Part, Variable};

/// Marks them.
pub(crate) fn mark(http: &mut Http) {
    let known = Known::of(http);
    let marked: Vec<bool> =
        http.locations.iter().map(|location| known.is_needed(http, &location.settings)).collect();
    for (location, is_needed) in http.locations.iter_mut().zip(marked) {
        location.settings.reads_body_first = is_needed;
    }
}

/// Variables of the configuration that depend on the body.
struct Known {
    maps: Vec<bool>,
    splits: Vec<bool>,
}

impl Known {
    fn of(http: &Http) -> Self {
        let (maps, splits) = (vec![false; http.maps.len()], vec![false; http.splits.len()]);
        let mut known = Self { maps, splits };
        // One may depend on another; each round finds at least one more.
        loop {
            let maps = http.maps.iter().map(|map| map.templates().any(|it| known.uses(it)));
            let splits = http.splits.iter().map(|split| known.uses(&split.source));
            let next = Self { maps: maps.collect(), splits: splits.collect() };
            let is_last = next.maps == known.maps && next.splits == known.splits;
            known = next;
            if is_last {
                return known;
            }
        }
    }

    fn uses(&self, template: &Template) -> bool {
        template.parts.iter().any(|part| match part {
            Part::Variable(Variable::RequestBody | Variable::RequestBodyFile) => true,
            Part::Variable(Variable::Map(id)) => self.maps.get(id.0 as usize) == Some(&true),
            Part::Variable(Variable::Split(id)) => self.splits.get(*id as usize) == Some(&true),
            _ => false,
        })
    }

    fn is_needed(&self, http: &Http, settings: &Settings) -> bool {
        let by_cgi = settings
            .cgi
            .as_deref()
            .is_some_and(|cgi| cgi.variables.iter().any(|(_, value)| self.uses(value)));
        let by_pass = settings.pass.as_deref().is_some_and(|pass| {
            let forward = &*pass.forward;
            let caching = Some(&*forward.caching).filter(|caching| caching.cache.is_some());
            let cached = caching.into_iter().flat_map(|caching| {
                caching.bypass.iter().chain(caching.no_cache.iter()).chain([&caching.key])
            });
            let group = match &pass.to {
                PassTo::Named(to) => http.upstreams.get(to.group.0 as usize),
                PassTo::Computed(_) => None,
            };
            let chosen_by = group.and_then(|group| group.key.as_ref());
            let address = match &pass.to {
                PassTo::Computed(template) => Some(template),
                PassTo::Named(_) => None,
            };
            let fields = forward.set_headers.iter().map(|(_, value)| value);
            let params = forward.params.iter().map(|param| &param.value);
            let mut all = fields
                .chain(params)
                .chain(&forward.method)
                .chain(&forward.set_body)
                .chain(cached)
                .chain(chosen_by)
                .chain(address);
            pass.storage.is_none() && all.any(|template| self.uses(template))
        });
        by_cgi || by_pass
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Memory, Options, load};

    #[test]
    fn what_depends_on_the_body_waits_for_it() {
        for (text, expected) in [
            ("proxy_pass http://u;", false),
            ("proxy_pass http://u; proxy_set_header X $request_body;", true),
            ("proxy_pass http://u; proxy_set_header X a${request_body_file}b;", true),
            ("proxy_pass http://u; proxy_set_body $request_body;", true),
            ("proxy_pass http://u; proxy_set_body $uri;", false),
            ("proxy_pass http://u/$request_body;", true),
            ("proxy_pass http://u; proxy_set_header X $by_map;", true),
            ("proxy_pass http://u; proxy_set_header X $by_value;", true),
            ("proxy_pass http://u; proxy_set_header X $by_split;", true),
            ("proxy_pass http://u; proxy_set_header X $other;", false),
            ("proxy_pass http://u; proxy_cache c; proxy_cache_key $uri$request_body;", true),
            // Without a cache, its key is of no interest.
            ("proxy_pass http://u; proxy_cache_key $uri$request_body;", false),
            ("proxy_pass http://hashed;", true),
            ("fastcgi_pass u; fastcgi_param X $request_body_file;", true),
            ("uwsgi_pass u; uwsgi_param X $request_body_file;", true),
            ("scgi_pass u; scgi_param X $request_body_file;", true),
            ("cgi_pass /x; cgi_set_var X $request_body_file;", true),
            ("cgi_pass /x; cgi_set_var X $uri;", false),
            ("add_header X $request_body; return 200;", false),
        ] {
            let text = format!(
                "http {{ map $by_split $by_map {{ default a; }}
                   split_clients $request_body $by_split {{ * a; }}
                   map $uri $by_value {{ /x $request_body; }} map $uri $other {{ default a; }}
                   proxy_cache_path /c keys_zone=c:1m;
                   upstream u {{ server 127.0.0.1:1; }}
                   upstream hashed {{ hash $request_body; server 127.0.0.1:1; }}
                   server {{ location /x {{ {text} }} }} }}"
            );
            let outcome = load(Path::new("/c"), &Options::new("/"), &Memory::of("/c", &*text));
            let shown: String = outcome.reports.iter().map(|it| it.render(false)).collect();
            let config = outcome.config.unwrap_or_else(|| panic!("{shown}"));
            let found = config.http.locations.iter().any(|it| it.settings.reads_body_first);
            assert_eq!(found, expected, "{text}");
        }
    }
}
