#include "compiler/report/Layers.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "runtime/artifact/ArtifactReader.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"

namespace tessera::report {

using artifact::toView;

int layerInName(std::string_view name) {
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    int number = 0;
    const auto [end, error] =
        std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc() && end == part.data() + part.size() && number >= 0)
      return number;
    name.remove_prefix(std::min(name.size(), part.size() + 1));
  }
  return -1;
}

namespace {

/// "transformer.wte" of "transformer.wte.weight", which is what a gradient of
/// it is named, and of itself.
std::string moduleOf(std::string_view name) {
  for (const std::string_view suffix : {".weight", ".bias"})
    if (name.ends_with(suffix))
      name.remove_suffix(suffix.size());
  return std::string(name);
}

/// Elements of a parameter as the model has it; scales of quantized weights are
/// none.
std::uint64_t parametersOf(const artifact::Tensor &tensor) {
  if (const artifact::Quantized *quantized = tensor.quantized())
    return quantized->part() == artifact::QuantizedPart::values
               ? std::uint64_t(quantized->rows()) *
                     std::uint64_t(quantized->columns()) *
                     std::max<std::uint64_t>(quantized->stack(), 1)
               : 0;
  const std::vector<std::uint64_t> shape = artifact::globalShape(tensor);
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t(1),
                         std::multiplies<>());
}

class Builder {
public:
  explicit Builder(const ReportInput &input) : input(input) {}
  void addShare(const artifact::Share &share, std::string_view program);
  void addParameters();
  std::vector<LayerRow> take();

private:
  /// Groups of rows in the order of the page.
  enum Place { before, inside, after, update, communication };
  using Key = std::tuple<Place, int, std::string>;

  Key keyOf(const artifact::Share &share, const artifact::DeviceCode &code,
            const StepView &step) const;
  void add(LayerRow &row, const artifact::DeviceCode &code,
           const StepView &step);

  const ReportInput &input;
  std::map<Key, LayerRow> rows;
  std::map<std::string, int> order; ///< of names outside of layers
  bool seenLayer = false;
};

Builder::Key Builder::keyOf(const artifact::Share &share,
                            const artifact::DeviceCode &code,
                            const StepView &step) const {
  const artifact::Node &node = *step.node;
  if (node.layer() >= 0)
    return {inside, node.layer(), ""};
  if (node.step_as_Collective() || node.step_as_Wait())
    return {communication, 0, "collectives outside of layers"};
  if (isUpdate(share, code, node))
    return {update, 0, "optimizer"};
  const std::string origin = moduleOf(toView(node.origin()));
  const std::string name = origin.empty() ? "other" : origin;
  const Key key{before, 0, name};
  return !seenLayer || rows.count(key) ? key : Key{after, 0, name};
}

void Builder::add(LayerRow &row, const artifact::DeviceCode &code,
                  const StepView &step) {
  const artifact::Node &node = *step.node;
  const auto runs = double(step.runs);
  const bool isLaunch = node.step_as_Launch() != nullptr;
  if (node.step_as_Collective()) {
    row.collectiveSeconds += runs * step.seconds;
  } else {
    row.flops += runs * step.flops;
    row.seconds += runs * step.seconds;
    row.launches += isLaunch ? step.runs : 0;
  }
  row.kernels.push_back(nameOf(code, node) +
                        (node.backward() ? " backward" : ""));
  const std::string origin(toView(node.origin()));
  auto part = std::ranges::find_if(row.parts, [&](const LayerPart &each) {
    return each.origin == origin && each.backward == node.backward();
  });
  if (part == row.parts.end())
    part =
        row.parts.insert(part, {.origin = origin, .backward = node.backward()});
  part->launches += isLaunch ? step.runs : 0;
  part->flops += runs * step.flops;
  part->seconds += runs * step.seconds;
}

void Builder::addShare(const artifact::Share &share, std::string_view program) {
  const artifact::DeviceCode &code = deviceOf(input, share);
  const artifact::Program *found = artifact::findProgram(code, program);
  if (!found)
    return;
  std::set<Key> own; // rows that this share is the first to have
  seenLayer = !rows.empty();
  for (const StepView &step : stepsOf(input, code, *found)) {
    if (step.node->step_as_Loop())
      continue;
    const Key key = keyOf(share, code, step);
    seenLayer |= std::get<0>(key) == inside;
    const auto [entry, isNew] = rows.try_emplace(key);
    if (isNew) {
      own.insert(key);
      entry->second.layer = std::get<0>(key) == inside ? std::get<1>(key) : -1;
      entry->second.name = std::get<0>(key) == inside
                               ? fmt::format("layer {}", std::get<1>(key))
                               : std::get<2>(key);
    }
    if (own.count(key))
      add(entry->second, code, step);
  }
}

void Builder::addParameters() {
  std::set<std::string_view> seen;
  for (const artifact::Share *share : *input.root.shares())
    for (const artifact::Tensor *tensor : *share->state()) {
      if (tensor->role() != artifact::Role::parameter ||
          !seen.insert(toView(tensor->name())).second)
        continue;
      const int layer = layerInName(toView(tensor->name()));
      const std::string module = moduleOf(toView(tensor->name()));
      Key key = layer >= 0 ? Key{inside, layer, ""} : Key{before, 0, module};
      if (layer < 0 && !rows.count(key) && rows.count({after, 0, module}))
        key = {after, 0, module};
      LayerRow &row = rows[key];
      row.layer = layer;
      if (row.name.empty())
        row.name = layer >= 0 ? fmt::format("layer {}", layer) : module;
      row.parameters += parametersOf(*tensor);
      row.shapes.push_back(
          fmt::format("{}", fmt::join(artifact::globalShape(*tensor), "x")));
    }
}

std::vector<LayerRow> Builder::take() {
  std::vector<LayerRow> list;
  for (auto &[key, row] : rows)
    list.push_back(std::move(row));
  return list;
}

} // namespace

std::vector<LayerRow> layerRows(const ReportInput &input,
                                std::string_view program) {
  Builder builder(input);
  for (const artifact::Share *share : *input.root.shares())
    builder.addShare(*share, program);
  builder.addParameters();
  return builder.take();
}

std::vector<std::pair<std::size_t, std::size_t>>
equalLayers(const std::vector<LayerRow> &rows) {
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool joins = i > 0 && rows[i].layer >= 0 && rows[i - 1].layer >= 0 &&
                       rows[i].kernels == rows[i - 1].kernels &&
                       rows[i].shapes == rows[i - 1].shapes;
    if (joins)
      groups.back().second = i;
    else
      groups.emplace_back(i, i);
  }
  return groups;
}

Json layersJson(const std::vector<LayerRow> &rows) {
  Json list = Json::array();
  for (const auto [first, last] : equalLayers(rows)) {
    const LayerRow &row = rows[first];
    Json parts = Json::array();
    for (const LayerPart &part : row.parts)
      parts.push_back({{"origin", part.origin},
                       {"backward", part.backward},
                       {"launches", part.launches},
                       {"flops", part.flops},
                       {"seconds", part.seconds}});
    list.push_back(
        {{"name", first == last ? row.name
                                : fmt::format("layers {} to {}", row.layer,
                                              rows[last].layer)},
         {"layer", row.layer},
         {"count", last - first + 1},
         {"parameters", row.parameters},
         {"launches", row.launches},
         {"flops", row.flops},
         {"seconds", row.seconds},
         {"collectiveSeconds", row.collectiveSeconds},
         {"parts", std::move(parts)}});
  }
  return list;
}

} // namespace tessera::report
