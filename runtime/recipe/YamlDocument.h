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

/// The result of `read` on the one document of `text`; exceptions, including
/// those of `read`, become one-line errors with `file` and the position.
Status readYaml(std::string_view text, const std::string &file,
                const std::function<Status(const YAML::Node &)> &read);

} // namespace tessera::recipe
