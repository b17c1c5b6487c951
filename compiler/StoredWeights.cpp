// Weights that a checkpoint stores quantized, and an adapter's quantized base:
// what a recipe says of them, and where there are kernels for them.
#include "compiler/Compilation.h"
#include "dialects/graph/GraphOps.h"
#include "dialects/graph/StoredLayout.h"
#include "hardware/Cluster.h"
#include "runtime/recipe/BaseLayout.h"
#include <map>

using namespace tessera;

// What a recipe's file leaves at its default may be meant for any model; what
// is given by --set may not contradict the stored weights.
bool Compilation::hasOtherGroups(int64_t group,
                                 recipe::ZeroPoints zeros) const {
  const models::Recipe::Inference &own = recipe.inference, defaults;
  return (own.group != group &&
          (own.group != defaults.group || isGiven("inference.group"))) ||
         (own.zeros != zeros &&
          (own.zeros != defaults.zeros || isGiven("inference.zeros")));
}

// Of stored weights, for errors: "int4 in groups of 32 with zero points".
static std::string describeStored(std::string_view quant, int64_t group,
                                  recipe::ZeroPoints zeros) {
  return "the weights are stored as " + std::string(quant) + " in groups of " +
         std::to_string(group) +
         (zeros == recipe::ZeroPoints::Groups ? " with zero points" : "");
}

// A base's integers and floats of 8 bits stay as they are stored. An fp8
// checkpoint that is not fp8 throughout is read as bf16, as everywhere.
llvm::Error Compilation::takeStoredBase() {
  recipe::AdapterBase stored = recipe::AdapterBase::Fp8;
  if (config.stored)
    stored = config.stored->bits == 4 ? recipe::AdapterBase::Int4
                                      : recipe::AdapterBase::Int8;
  else if (!config.floats || recipe.adapter.base != recipe::AdapterBase::Auto)
    return llvm::Error::success();
  const int64_t group =
      config.stored ? config.stored->group : config.floats->group;
  const recipe::ZeroPoints zeros = config.stored && config.stored->zeros
                                       ? recipe::ZeroPoints::Groups
                                       : recipe::ZeroPoints::None;
  const bool isOther = recipe.adapter.base != recipe::AdapterBase::Auto &&
                       recipe.adapter.base != stored;
  if (isOther || hasOtherGroups(group, zeros))
    return makeError(
        "adapter.base: " + describeStored(recipe::name(stored), group, zeros) +
        "; omit adapter.base, inference.group and inference.zeros");
  recipe.adapter.base = stored;
  recipe.inference.group = group;
  recipe.inference.zeros = zeros;
  for (const Status &status : {recipe::checkTogether(recipe),
                               models::checkRecipe(recipe, config.spec, mode)})
    if (!status.ok())
      return makeError(status.message());
  return llvm::Error::success();
}

// GPUs have no kernels of super-blocks and mxfp4: there these matrices are
// dequantized, also for the CPU of the same program.
void Compilation::dropLayouts() {
  const bool hasGpu = llvm::any_of(
      kindsOf(targets), [](const DeviceKind &kind) { return !kind.isCpu(); });
  std::map<std::string, size_t> counts;
  std::erase_if(config.layouts, [&](const auto &each) {
    const QuantizedLayout &layout = each.second;
    const bool drops = hasGpu && (layout.superBlocks || layout.mxfp4());
    if (drops)
      ++counts[layout.mxfp4() ? "MXFP4"
                              : "Q" + std::to_string(layout.bits) + "_K"];
    return drops;
  });
  std::string types;
  for (const auto &[type, count] : counts)
    types += (types.empty() ? "" : ", ") + std::to_string(count) + " " + type;
  if (!types.empty() && request.warning && !request.isTrial)
    request.warning("weights that are dequantized as they are loaded: " +
                    types + ", which no kernel of GPUs reads as stored");
}

// Where rows are not gathered from a layout (quantize-weights: tables), a table
// that is not the head, too, is dequantized.
void Compilation::dropTable() {
  if (gathersAsStored(targets, mesh))
    return;
  const std::string table =
      std::string(models::moduleNames(config.spec).embedding) + ".weight";
  auto found = config.layouts.find(table);
  if (found == config.layouts.end())
    return;
  if (request.warning && !request.isTrial)
    request.warning("weights that are dequantized as they are loaded: the "
                    "embedding table, whose rows are gathered as stored on one "
                    "CPU alone");
  if (!config.spec.tieWordEmbeddings)
    config.layouts.erase(found);
}

// Why experts of a Hugging Face checkpoint, which other programs than those of
// one CPU have as bf16, are dequantized; nothing if they are not.
static std::optional<std::string>
dequantizes(const models::Recipe &recipe, models::Mode mode, bool isOnOneCpu) {
  if (mode != models::Mode::Infer)
    return "which inference alone reads as stored";
  if (recipe.inference.quant != models::Quant::None)
    return "and stay bf16 with --quant; omit it to execute them as stored";
  if (recipe.inference.numerics == recipe::Numerics::Training)
    return "as inference.numerics: training has no quantized weights";
  if (!isOnOneCpu)
    return "which one CPU alone reads as stored";
  return std::nullopt;
}

// Each matrix has its own layout, so that no key says it of all.
llvm::Error Compilation::takeLayouts() {
  if (mode != models::Mode::Infer)
    return makeError(config.file +
                     ": quantized weights of a GGUF file cannot "
                     "be trained; convert it first: tessera import");
  dropLayouts();
  dropTable();
  if (config.layouts.empty())
    return checkQuantOptions();
  if (recipe.inference.quant != models::Quant::None)
    return makeError("inference.quant: the weights of " + request.spec +
                     " are quantized already, and are executed as they are "
                     "stored; omit --quant");
  for (const char *key : {"inference.group", "inference.zeros"})
    if (isGiven(key))
      return makeError(llvm::Twine(key) + ": the weights of " + request.spec +
                       " are quantized already, in groups of their own; omit " +
                       (llvm::StringRef(key).ends_with("group")
                            ? "--quant-group"
                            : "--quant-zeros"));
  const bool areFloats = llvm::all_of(
      config.layouts, [](const auto &each) { return each.second.floats; });
  if (areFloats && isGiven("inference.activations") &&
      recipe.inference.activations == recipe::Activations::Int8)
    return makeError("inference.activations: int8 activations are multiplied "
                     "by weights in integers, and " +
                     request.spec + " has none; leave it out");
  return llvm::Error::success();
}

// Of weights that are not stored quantized.
llvm::Error Compilation::checkQuantOptions() const {
  const models::Quant quant = recipe.inference.quant;
  if (isGiven("inference.activations") &&
      recipe.inference.activations == recipe::Activations::Int8 &&
      (quant == models::Quant::None || quant == models::Quant::Fp8))
    return makeError("inference.activations: int8 activations are multiplied "
                     "by weights in integers, which these are not; add --quant "
                     "int8 or int4, or leave it out");
  if (quant != models::Quant::None)
    return llvm::Error::success();
  if (isGiven("inference.group"))
    return makeError("inference.group: the weights are not quantized, so they "
                     "have no groups; add --quant int8, int4 or fp8, or omit "
                     "--quant-group");
  if (isGiven("inference.zeros"))
    return makeError("inference.zeros: the weights are not quantized, so they "
                     "have no zero points; add --quant int8 or int4, or omit "
                     "--quant-zeros");
  return llvm::Error::success();
}

// Integers are kept as they are stored, and are not trained.
llvm::Error Compilation::takeStoredWeights() {
  if (config.isDequantizable && !config.layouts.empty())
    if (auto why = dequantizes(recipe, mode, gathersAsStored(targets, mesh))) {
      if (request.warning && !request.isTrial)
        request.warning("weights that are dequantized as they are loaded: " +
                        std::to_string(config.layouts.size()) + " MXFP4, " +
                        *why);
      config.layouts.clear();
      // What reads a run's weights would look for stored ones otherwise.
      if (mode == models::Mode::Train)
        config.text = models::withoutQuantization(config.text);
    }
  if (mode == models::Mode::Train &&
      recipe.adapter.kind != recipe::AdapterKind::None)
    if (llvm::Error error = takeStoredBase())
      return error;
  const bool hasCodes =
      mode == models::Mode::Train &&
      recipe::quantOf(recipe.adapter.base) != models::Quant::None;
  if (hasCodes)
    return llvm::Error::success();
  if (!config.layouts.empty())
    return takeLayouts();
  if (!config.stored)
    return checkQuantOptions();
  if (mode != models::Mode::Infer)
    return makeError(config.file + ": key 'quantization_config': weights of " +
                     std::to_string(config.stored->bits) +
                     " bits cannot be trained; train an adapter over them (set "
                     "adapter.kind), or use the model in full precision");
  models::Recipe::Inference &inference = recipe.inference;
  const models::Quant quant =
      config.stored->bits == 4 ? models::Quant::Int4 : models::Quant::Int8;
  const bool isOther =
      inference.quant != quant &&
      (inference.quant != models::Quant::None || isGiven("inference.quant"));
  const int64_t group = config.stored->group;
  const recipe::ZeroPoints zeros = config.stored->zeros
                                       ? recipe::ZeroPoints::Groups
                                       : recipe::ZeroPoints::None;
  if (isOther || hasOtherGroups(group, zeros))
    return makeError("inference.quant: " +
                     describeStored(models::name(quant), group, zeros) +
                     "; omit --quant, --quant-group and --quant-zeros");
  inference.quant = quant;
  inference.group = group;
  inference.zeros = zeros;
  return llvm::Error::success();
}

// Parameters say in which layout the file has them, until quantize-weights.
void Compilation::markLayouts(mlir::ModuleOp module) const {
  for (auto function : module.getOps<mlir::func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto role =
          function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
      auto name =
          function.getArgAttrOfType<mlir::StringAttr>(i, graph::kStateAttr);
      if (!name || !role || role.getValue() != graph::Role::parameter)
        continue;
      if (auto found = config.layouts.find(name.str());
          found != config.layouts.end())
        function.setArgAttr(
            i, graph::kStoredAttr,
            graph::writeStored(module.getContext(), found->second));
    }
}

// Kernels of nf4 are of CPUs.
llvm::Error Compilation::checkBase() const {
  if (!isQuantized(recipe.adapter.base))
    return llvm::Error::success();
  for (const DeviceKind &kind : kindsOf(targets))
    if (!kind.isCpu() && recipe.adapter.base == recipe::AdapterBase::Nf4)
      return makeError("adapter.base: no kernel reads nf4 weights on " +
                       kind.name + "; choose int4 or bf16, or omit the target");
  return llvm::Error::success();
}
