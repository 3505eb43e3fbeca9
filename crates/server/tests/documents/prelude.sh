# Runs the script of a page: prelude.sh SCRIPT FOLDER-OF-THE-BINARY REPOSITORY, in namespaces of its own. Exit status 125: not possible
# on this machine.
script=$1 binaries=$2 repository=$3

# --- The machine of a reader: the package is installed, and nothing else is there.
cannot() { echo "$*" >&2; exit 125; }
mount --make-rprivate / || cannot "mount"
work=/mnt && mount -t tmpfs none "$work" || cannot "tmpfs"
for folder in etc var usr/lib/systemd; do
    name=${folder//\//-}
    mkdir -p "$work/$name" "$work/$name.work"
    [ -d "/$folder" ] || continue
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$work/$name,workdir=$work/$name.work" "/$folder" || cannot "overlay"
done
for folder in srv run home tmp; do mkdir -p "$work/$folder"; done
mkdir -p "$work/log" "$work/page" && cp "$script" "$work/page/page.sh"
# (the binary and the documents may be below one of these)
mkdir -p "$work/bin" && cp "$binaries/sekisho" "$work/bin/sekisho"
mkdir -p "$work/packaging" && cp "$repository"/packaging/* "$work/packaging/" 2>/dev/null
chmod 1777 "$work/tmp"
for folder in srv run home tmp; do mount --bind "$work/$folder" "/$folder" || cannot "$folder"; done
ip link set lo up || cannot "network"
export PATH="$work/bin:/usr/sbin:/sbin:$PATH" HOME=/home/kim LANG=C.UTF-8
mkdir -p /home/kim/public /etc/sekisho/conf.d /var/log/sekisho /usr/share/sekisho 2>/dev/null
echo hello > /home/kim/public/hello.txt
echo '127.0.0.1 localhost machine' > /etc/hosts
# Every host that the page names is this machine.
names="localhost app $(grep -ohE '[a-z0-9-]+(\.[a-z0-9-]+)*\.(com|org|net|internal|example|test)\b' "$work/page/page.sh" | sort -u)
    $(grep -ohE 'https?://[a-z][a-z0-9.-]+' "$work/page/page.sh" | sed 's,.*//,,' | sort -u)"
for name in $names; do echo "127.0.0.1 $name" >> /etc/hosts; done
echo "$(hostname) 127.0.0.1" >> /etc/hosts
for name in sekisho operator monitor; do
    id $name >/dev/null 2>&1 && continue
    # Debian has a group "operator".
    group=$(getent group $name >/dev/null && echo "--gid $name")
    useradd --system --no-create-home $group $name || { echo "no user $name" >&2; exit 1; }
done
chown sekisho: /var/log/sekisho
chmod 755 "$work" "$work/bin" /home/kim
cp "$work/packaging/sekisho.conf" /etc/sekisho/
sed "s,/usr/share/sekisho/html,/srv/default," "$work/packaging/default-site.conf" > /etc/sekisho/conf.d/default.conf
mkdir -p /srv/default && cp "$work/packaging/index.html" /srv/default/

# One key and certificate, under each name that the pages use.
certificate=$work/certificate.pem key=$work/key.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.org \
    -addext 'subjectAltName=DNS:example.org,DNS:*.example.org' -keyout "$key" -out "$certificate" 2>/dev/null || cannot openssl
for name in example.org server ecdsa rsa internal; do
    install -m 0640 -g sekisho "$key" "/etc/sekisho/$name.key" && cp "$certificate" "/etc/sekisho/$name.pem"
done
grep -ohE 'ssl_certificate +/[^; ]+' "$work/page/page.sh" | sed 's/.* //' | while read -r file; do
    [ -e "$file" ] || { mkdir -p "${file%/*}" && cp "$certificate" "$file"; }
done
grep -ohE 'ssl_certificate_key +/[^; ]+' "$work/page/page.sh" | sed 's/.* //' | while read -r file; do
    [ -e "$file" ] || { mkdir -p "${file%/*}" && install -m 0640 -g sekisho "$key" "$file"; }
done
cp "$certificate" /etc/sekisho/clients-ca.pem
: > "$work/index.txt"
echo 01 > "$work/crlnumber"
printf '[ca]\ndefault_ca=us\n[us]\ndatabase=%s/index.txt\ncrlnumber=%s/crlnumber\ndefault_md=sha256\ndefault_crl_days=30\ncrl_extensions=more\n[more]\nauthorityKeyIdentifier=keyid\n' "$work" "$work" > "$work/ca.conf"
openssl ca -gencrl -config "$work/ca.conf" -keyfile "$key" -cert "$certificate" -out /etc/sekisho/clients.crl 2>/dev/null || cannot "a CRL"
for name in users writers git-users; do echo 'kim:{PLAIN}secret' > "/etc/sekisho/$name"; done
echo '0123456789abcdef0123456789abcdef' > /etc/sekisho/ctl.secret
echo 'ci:0123456789abcdef0123456789abcde1' > /etc/sekisho/tokens
cp /etc/nginx/*_params /etc/nginx/fastcgi.conf /etc/sekisho/ 2>/dev/null

# --- What the commands of a page mean.
at_line() { line=$1; }
fail() { echo "line $line: $*" >&2; trap - ERR; cat /var/log/sekisho/error.log "$work/log/"* >&2 2>/dev/null; exit 1; }
eventually() { # a bounded wait
    for _ in $(seq 500); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 0.02; done
    fail "never: $*"
}
write_file() { mkdir -p "${1%/*}" && cat > "$1"; }

# A server in the foreground: a reader would stop it before the next one.
foreground=
sekisho() {
    case " $* " in
    *" -t "* | *" -T "* | *" -s "* | *" -v "* | *" -V "* | " ctl "* | " migrate "* | " manual "* | *" --help "*) command sekisho "$@"; return ;;
    esac
    if [ -n "$foreground" ]; then kill -QUIT "$foreground"; wait "$foreground" || true; fi
    : > "$work/log/foreground"
    command sekisho "$@" > "$work/log/foreground" 2>&1 &
    foreground=$!
    case " $* " in
    " serve "*) eventually grep -q 'serves' "$work/log/foreground" ;;
    esac
}
service() { # the installed one
    if [ -s /run/sekisho.pid ] && kill -0 "$(cat /run/sekisho.pid)" 2>/dev/null; then return; fi
    command sekisho -c /etc/sekisho/sekisho.conf > "$work/log/service" 2>&1 &
    eventually test -s /run/sekisho.pid
}
# There is no systemd in here; these are what the unit does.
systemctl() {
    case $1 in
    start) service ;;
    reload) service; command sekisho -s reload -c /etc/sekisho/sekisho.conf ;;
    *) fail "systemctl $*" ;;
    esac
}
curl() { command curl -sS -f --max-time 20 "$@"; }
must_print() {
    words=$1; shift
    if [ "$1" = curl ]; then shift; set -- command curl -sS --max-time 20 "$@"; fi
    printed=$("$@") || fail "$* failed: $printed"
    case $printed in *"$words"*) ;; *) fail "$* printed \"$printed\", not \"$words\"" ;; esac
}
must_answer() {
    status=$1; shift 2
    answered=$(command curl -sS --max-time 20 -o /dev/null -w '%{http_code}' "$@") || fail "curl $* failed"
    [ "$answered" = "$status" ] || fail "curl $*: $answered, not $status"
}
# A part of a configuration: good if one of the contexts takes it.
test_snippet() {
    snippet=$(cat)
    rm -f "$work/log/snippet"
    for context in '%s' 'events {} http { %s }' 'events {} http { server { listen 80; %s } }' \
        'events {} http { server { listen 80; location /here/ { %s } } }' \
        'events {} http { server { listen 443 ssl; ssl_certificate example.org.pem; ssl_certificate_key example.org.key; %s } }' \
        'events {} http { upstream app { server 127.0.0.1:3000; } server { listen 80; %s } }' \
        'events {} http { upstream app { server 127.0.0.1:3000; } server { listen 80; location /here/ { %s } } }' \
        'events {} http { proxy_cache_path /var/cache/files keys_zone=files:1m; server { listen 80; %s } }' \
        '%s events {} http { server { listen 127.0.0.1:80; } }' \
        'events {} http { limit_req_zone $binary_remote_addr zone=clients:1m rate=1r/s; %s }'; do
        { echo "pid off; error_log stderr;"; printf "$context" "
$snippet
"; } > /etc/sekisho/snippet.conf
        # (pid and error_log may be in the snippet itself)
        case $context in '%s') printf '%s\n' "$snippet" > /etc/sekisho/snippet.conf ;; esac
        if command sekisho -t -c /etc/sekisho/snippet.conf >> "$work/log/snippet" 2>&1; then rm "$work/log/snippet"; return; fi
    done
    fail "no context takes this configuration"
}

line=0
trap 'fail "a command failed: $BASH_COMMAND"' ERR
set -E -o pipefail
if grep -q 'systemctl\|sekisho ctl\|localhost/' "$work/page/page.sh"; then service; fi
cd /home/kim
. "$work/page/page.sh"
