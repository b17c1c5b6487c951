// Sections of keys and values in untrusted YAML: a table of keys for each.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/Quantity.h"
#include "runtime/recipe/YamlDocument.h"

namespace tessera::planner {

/// A key of a section and what it sets; the error does not say where.
struct YamlKey {
  std::string_view name;
  bool required;
  std::function<Status(const YAML::Node &)> store;
};

/// The text of one value, which is not empty.
Status yamlScalar(const YAML::Node &node, std::string &to);

YamlKey yamlText(std::string_view name, std::string &to);
YamlKey yamlQuantity(std::string_view name, double &to, Unit unit,
                     bool required = true);
/// A whole number from 1 to `most`.
YamlKey yamlInteger(std::string_view name, int64_t &to, int64_t most,
                    bool required = true);
/// In (0, 1].
YamlKey yamlFraction(std::string_view name, double &to, bool required = true);
/// The name of a target (Targets.h).
YamlKey yamlTarget(std::string_view name, std::string &to, bool required);
/// Optional.
YamlKey yamlFlag(std::string_view name, bool &to);

/// Reads the sections of one file.
class YamlSections {
public:
  explicit YamlSections(std::string file) : file(std::move(file)) {}

  /// Stores every key once; an unknown, missing or repeated one is an error:
  /// "FILE:LINE: key 'links': ...". `prefix` is what errors put before a key.
  Status section(const YAML::Node &node, const std::string &prefix,
                 const std::vector<YamlKey> &keys);

protected:
  std::string file;

private:
  Status value(const YAML::Node &keyNode, const YAML::Node &node,
               const std::string &prefix, const std::vector<YamlKey> &keys);
  /// An error with its location; outer sections forward it unchanged.
  Status at(const YAML::Node &node, const std::string &key,
            const std::string &what);

  bool located = false;
};

} // namespace tessera::planner
