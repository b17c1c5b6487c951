// Cluster files of one machine without GPUs: the sections `cpu` and
// `collectives`.
#pragma once
#include <string>

#include "hardware/Cluster.h"
#include "hardware/YamlSections.h"

namespace tessera::planner {

/// The section `cpu`, and the list `collectives`.
class HostReader : public YamlSections {
public:
  using YamlSections::YamlSections;
  Status readProcessor(const YAML::Node &node, Host &host);
  Status readCollectives(const YAML::Node &node, Host &host);

private:
  Status readKernels(const YAML::Node &node, Host &host);
};

} // namespace tessera::planner
