#include "hardware/YamlSections.h"

#include <cmath>
#include <set>

#include "hardware/Targets.h"
#include "runtime/support/Text.h"

namespace tessera::planner {

Status yamlScalar(const YAML::Node &node, std::string &to) {
  if (!node.IsScalar() || node.Scalar().empty())
    return Status::error("must be one value");
  to = node.Scalar();
  return Status::success();
}

YamlKey yamlText(std::string_view name, std::string &to) {
  return {name, true,
          [&to](const YAML::Node &node) { return yamlScalar(node, to); }};
}

YamlKey yamlQuantity(std::string_view name, double &to, Unit unit,
                     bool required) {
  return {name, required, [&to, unit](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, given));
            StatusOr<double> value = parseQuantity(given, unit);
            if (!value.ok())
              return value.status();
            to = *value;
            return Status::success();
          }};
}

YamlKey yamlInteger(std::string_view name, int64_t &to, int64_t most,
                    bool required) {
  return {name, required, [&to, most](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, given));
            StatusOr<double> value = parseQuantity(given, Unit::Count);
            if (!value.ok())
              return value.status();
            if (*value != std::floor(*value) || *value > double(most))
              return Status::error("{} must be a whole number, at most {}",
                                   quote(given), most);
            to = int64_t(*value);
            return Status::success();
          }};
}

YamlKey yamlFraction(std::string_view name, double &to, bool required) {
  return {name, required, [&to](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, given));
            StatusOr<double> value = parseQuantity(given, Unit::Count);
            if (!value.ok())
              return value.status();
            if (*value > 1)
              return Status::error(
                  "{} must be a fraction, more than 0 and at most 1",
                  quote(given));
            to = *value;
            return Status::success();
          }};
}

YamlKey yamlTarget(std::string_view name, std::string &to, bool required) {
  return {name, required, [&to](const YAML::Node &node) -> Status {
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, to));
            if (lookupTileTarget(to))
              return Status::success();
            return Status::error("unknown target {}; use one of {}", quote(to),
                                 knownTargets());
          }};
}

YamlKey yamlFlag(std::string_view name, bool &to) {
  return {name, false, [&to](const YAML::Node &node) -> Status {
            std::string given;
            TESSERA_RETURN_IF_ERROR(yamlScalar(node, given));
            if (given != "true" && given != "false")
              return Status::error("{} must be true or false", quote(given));
            to = given == "true";
            return Status::success();
          }};
}

Status YamlSections::section(const YAML::Node &node, const std::string &prefix,
                             const std::vector<YamlKey> &keys) {
  if (!node.IsMap())
    return at(node, prefix, "must be a section of keys and values");
  std::set<std::string> seen;
  for (const auto &entry : node) {
    if (!entry.first.IsScalar())
      return at(entry.first, prefix, "keys must be plain words");
    const std::string &name = entry.first.Scalar();
    if (!seen.insert(name).second)
      return at(entry.first, prefix + name, "is given twice; keep one");
    TESSERA_RETURN_IF_ERROR(value(entry.first, entry.second, prefix, keys));
  }
  for (const YamlKey &key : keys)
    if (key.required && !seen.contains(std::string(key.name)))
      return at(node, prefix + std::string(key.name), "is missing; add it");
  return Status::success();
}

Status YamlSections::value(const YAML::Node &keyNode, const YAML::Node &node,
                           const std::string &prefix,
                           const std::vector<YamlKey> &keys) {
  std::vector<std::string_view> names;
  for (const YamlKey &key : keys) {
    if (key.name == keyNode.Scalar()) {
      Status status = key.store(node);
      if (status.ok() || located)
        return status;
      return at(keyNode, prefix + keyNode.Scalar(), status.message());
    }
    names.push_back(key.name);
  }
  return at(keyNode, prefix + keyNode.Scalar(),
            "is not a key here" + suggestion(keyNode.Scalar(), names));
}

Status YamlSections::at(const YAML::Node &node, const std::string &key,
                        const std::string &what) {
  located = true;
  return Status::error("{}:{}: key {}: {}", file, node.Mark().line + 1,
                       quote(key), what);
}

} // namespace tessera::planner
