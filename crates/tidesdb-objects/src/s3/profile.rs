//! Credentials of the files that the tools of AWS share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

use super::options::{Keys, wrong};

/// Looks a variable of the environment up.
pub(super) type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A profile of the two files. They are read for each request that is signed, because other programs renew what is in them.
#[derive(Debug)]
pub(super) struct Profile {
    name: String,
    credentials: PathBuf,
    config: PathBuf,
}

impl Profile {
    /// Returns the profile that the environment names, if it has keys.
    ///
    /// # Errors
    /// `InvalidInput` if a profile is asked for and has no keys, or needs what is not supported.
    pub(super) fn find(get: Get<'_>) -> io::Result<Option<Self>> {
        let home = get("HOME").or_else(|| get("USERPROFILE")).map(PathBuf::from);
        let file = |variable: &str, name: &str| match (get(variable), &home) {
            (Some(path), _) => Some(PathBuf::from(path)),
            (None, Some(home)) => Some(home.join(".aws").join(name)),
            (None, None) => None,
        };
        let (Some(credentials), Some(config)) =
            (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config"))
        else {
            return Ok(None);
        };
        let wanted = get("AWS_PROFILE").filter(|name| !name.is_empty());
        let name = wanted.clone().unwrap_or_else(|| "default".to_owned());
        let profile = Self { name, credentials, config };
        let files = profile.read()?;
        if files.keys().is_some() {
            return Ok(Some(profile));
        }
        for unsupported in ["sso_session", "sso_start_url", "credential_process", "role_arn"] {
            if files.value(unsupported).is_some() {
                return Err(wrong(format!(
                    "the profile {} needs {unsupported}, which is not supported: give keys in the profile or in the environment",
                    profile.name
                )));
            }
        }
        match wanted {
            Some(name) => Err(wrong(format!("the profile {name} of AWS_PROFILE has no keys"))),
            None => Ok(None),
        }
    }

    /// Reads both files, each once: another program may replace them between two reads.
    fn read(&self) -> io::Result<Files> {
        let other = if self.name == "default" { self.name.clone() } else { format!("profile {}", self.name) };
        let credentials = (text(&self.credentials)?, self.name.clone());
        Ok(Files { all: [credentials, (text(&self.config)?, other)] })
    }

    fn keys(&self) -> io::Result<Option<Keys>> {
        Ok(self.read()?.keys())
    }
}

/// What the files have at one time, that of the credentials first: text, and section of the profile.
struct Files {
    all: [(String, String); 2],
}

impl Files {
    /// Returns the keys of the first file that has some. Those of two files do not belong together.
    fn keys(&self) -> Option<Keys> {
        self.all.iter().find_map(|(text, section)| {
            let value = |key: &str| value_of(text, section, key);
            let (id, secret) = (value("aws_access_key_id")?, value("aws_secret_access_key")?);
            Some(Keys { id, secret, token: value("aws_session_token") })
        })
    }

    fn value(&self, key: &str) -> Option<String> {
        self.all.iter().find_map(|(text, section)| value_of(text, section, key))
    }
}

/// Returns what a file has: nothing if there is none.
fn text(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display()))),
    }
}

fn value_of(text: &str, section: &str, key: &str) -> Option<String> {
    let mut is_here = false;
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            is_here = name.0.trim() == section;
        } else if let Some((name, value)) = line.split_once('=')
            && is_here
            && name.trim_end() == key
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

#[async_trait]
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |e: io::Error| object_store::Error::Generic { store: "S3", source: Box::new(e) };
        let gone = || wrong(format!("the profile {} has no keys any more", self.name));
        let keys = self.keys().map_err(failed)?.ok_or_else(|| failed(gone()))?;
        Ok(Arc::new(AwsCredential { key_id: keys.id, secret_key: keys.secret, token: keys.token }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn environment<'a>(pairs: &'a [(&'a str, String)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.clone())
    }

    #[test]
    fn keys_are_those_of_the_profile_that_is_asked_for() {
        let home = tempfile::tempdir().unwrap();
        let aws = home.path().join(".aws");
        std::fs::create_dir(&aws).unwrap();
        let all = "# a comment\n[default]\naws_access_key_id=ONE\naws_secret_access_key = first\n\n[work]\naws_access_key_id = TWO\n\
            aws_secret_access_key = a=b \naws_session_token = token\n";
        std::fs::write(aws.join("credentials"), all).unwrap();
        let config = "[profile far]\naws_access_key_id = SIX\naws_secret_access_key = sixth\n[profile single]\nsso_session = x\n\
            [profile other]\nregion = x\n";
        std::fs::write(aws.join("config"), config).unwrap();
        let find = |profile: &str| {
            let pairs = [("HOME", home.path().display().to_string()), ("AWS_PROFILE", profile.to_owned())];
            let found = Profile::find(&environment(&pairs))?;
            found.map_or(Ok(None), |found| found.keys())
        };
        let keys = |id: &str, secret: &str, token: Option<&str>| {
            Some(Keys { id: id.into(), secret: secret.into(), token: token.map(Into::into) })
        };
        assert!(find("").unwrap() == keys("ONE", "first", None));
        assert!(find("work").unwrap() == keys("TWO", "a=b", Some("token")));
        assert!(find("far").unwrap() == keys("SIX", "sixth", None));
        assert!(find("single").unwrap_err().to_string().contains("sso_session"));
        assert!(find("other").unwrap_err().to_string().contains("has no keys"));
        assert!(Profile::find(&|_| None).unwrap().is_none());
    }
    /// Regression test: the two keys and the token were read one after the other, so that those of two pairs could be mixed.
    #[test]
    fn keys_that_are_renewed_are_read_together() {
        let home = tempfile::tempdir().unwrap();
        let [file, next] = ["credentials", "next"].map(|name| home.path().join(name));
        let renew = |n: u32| {
            let text = format!(
                "[default]\naws_access_key_id={n}\naws_secret_access_key={n}\naws_session_token={n}\n"
            );
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, &file).unwrap();
        };
        renew(0);
        let profile =
            Profile { name: "default".into(), credentials: file.clone(), config: home.path().join("config") };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(renew));
            let (mut seen, mut mixed) = (BTreeSet::new(), None);
            while seen.len() < 200 && mixed.is_none() {
                let Ok(Some(keys)) = profile.keys() else { break };
                let is_pair = keys.id == keys.secret && keys.token.as_ref() == Some(&keys.id);
                mixed = (!is_pair).then_some(keys.secret);
                seen.insert(keys.id);
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!((seen.len(), mixed), (200, None));
        });
    }

    #[test]
    fn keys_of_two_files_are_not_mixed() {
        let home = tempfile::tempdir().unwrap();
        let [credentials, config] = ["credentials", "config"].map(|name| home.path().join(name));
        let profile = Profile { name: "work".into(), credentials, config };
        let pair = |id: &str| format!("aws_access_key_id={id}\naws_secret_access_key={id}\n");
        std::fs::write(&profile.config, format!("[profile work]\n{}aws_session_token=far\n", pair("far")))
            .unwrap();
        std::fs::write(&profile.credentials, "[work]\naws_access_key_id=half\n").unwrap();
        assert_eq!(profile.keys().unwrap().unwrap().id, "far");
        std::fs::write(&profile.credentials, format!("[work]\n{}", pair("near"))).unwrap();
        let keys = profile.keys().unwrap().unwrap();
        assert!(keys.id == "near" && keys.secret == "near" && keys.token.is_none());
    }
}
