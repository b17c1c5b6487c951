// The model as layers: parameters, FLOPs and time of each.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/report/ProgramSteps.h"

namespace tessera::report {

/// Steps of one layer with the same origin and direction.
struct LayerPart {
  std::string origin;
  bool backward = false;
  std::uint64_t launches = 0;
  double flops = 0, seconds = 0; ///< of one run of the program
};

/// A layer of the model, or what is outside of the layers and has one name.
struct LayerRow {
  std::string name; ///< "layer 3", "lm_head", "optimizer", "collectives"
  int layer = -1;
  std::uint64_t parameters = 0; ///< of whole tensors
  std::uint64_t launches = 0;
  double flops = 0, seconds = 0, collectiveSeconds = 0;
  std::vector<LayerPart> parts;     ///< in program order
  std::vector<std::string> kernels; ///< in program order
  std::vector<std::string> shapes;  ///< of its parameters
};

/// The rows of a program in order: what precedes the first layer in the
/// forward pass, the layers, and the rest. Of a row that several shares have,
/// as ranks of a data-parallel mesh do, that of the first one. Collectives
/// count apart from seconds.
std::vector<LayerRow> layerRows(const ReportInput &input,
                                std::string_view program);

/// Adjacent layers that launch equal kernels on parameters of equal shapes:
/// [first, last] of `rows`.
std::vector<std::pair<std::size_t, std::size_t>>
equalLayers(const std::vector<LayerRow> &rows);

Json layersJson(const std::vector<LayerRow> &rows);

/// The number of the layer in a tensor's name ("h.3.attn": 3), or -1.
int layerInName(std::string_view name);

} // namespace tessera::report
