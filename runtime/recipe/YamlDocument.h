// Reads untrusted YAML that must hold exactly one document.
#pragma once
#include "runtime/support/Status.h"

#include <functional>
#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

namespace tessera::recipe {

/// The one document of `text`; throws YAML::Exception if it is not valid YAML,
/// or if anything follows it.
YAML::Node loadOne(const std::string &text);

/// What `read` says of the one document of `text`; exceptions, its own too, are
/// errors of one line with `file` and the place.
Status readYaml(std::string_view text, const std::string &file,
                const std::function<Status(const YAML::Node &)> &read);

} // namespace tessera::recipe
