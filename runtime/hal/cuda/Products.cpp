#include "runtime/hal/cuda/Products.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/cuda/TuningFile.h"
#include "runtime/support/Hash.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>

namespace tessera::hal::cuda {

using artifact::toView;

namespace {

constexpr std::string_view kGenerated = "generated", kLibraryPrefix = "library";

/// What a program does with a kernel: an instance of it, and how its arguments
/// are aligned in all of them.
struct Use {
  LaunchCommand launch{};
  LaunchInstance instance{};
  ProductAlignment alignment;
};

/// A place for the three spaces to compute alignments with.
std::byte *const kNowhere = // NOLINTNEXTLINE(performance-no-int-to-ptr)
    reinterpret_cast<std::byte *>(std::uintptr_t(1) << 32);

/// `alignment` and whatever else an address moves by.
void align(std::uint32_t &alignment, std::uint64_t bytes) {
  alignment =
      static_cast<std::uint32_t>(std::gcd(std::uint64_t(alignment), bytes));
}

void addUses(const Commands &program, std::map<std::uint32_t, Use> &uses) {
  std::map<std::uint32_t, std::uint64_t> moves; // by pointer
  for (const Advance &advance : program.advances)
    moves[advance.pointer] = std::gcd(moves[advance.pointer], advance.stride);
  for (const LaunchCommand &launch : program.launches) {
    const artifact::Gemm *gemm = launch.kernel->gemm();
    if (!gemm)
      continue;
    const auto found = uses.try_emplace(launch.kernelIndex).first;
    Use &use = found->second;
    use.launch = launch;
    for (std::uint32_t i = launch.firstInstance; i < launch.endInstance; ++i) {
      use.instance = program.instances[i];
      const auto add = [&](std::uint32_t &alignment,
                           const artifact::GemmOperand &operand) {
        const std::uint32_t pointer =
            program.instances[i].firstPointer + operand.buffer();
        const std::uint64_t size = artifact::elementBytes(
            launch.kernel->element_types()->Get(operand.buffer()));
        align(alignment,
              reinterpret_cast<std::uintptr_t>(program.pointers[pointer]));
        align(alignment, operand.offset() * size);
        if (const auto move = moves.find(pointer); move != moves.end())
          align(alignment, move->second);
        if (gemm->batches() > 1)
          align(alignment, operand.batch() * size);
      };
      add(use.alignment.lhs, *gemm->lhs());
      add(use.alignment.rhs, *gemm->rhs());
      add(use.alignment.result, *gemm->result());
    }
  }
}

/// The kernels that are products, by their number.
std::map<std::uint32_t, Use> findUses(const artifact::DeviceCode &code) {
  std::map<std::uint32_t, Use> uses;
  for (const artifact::Program *program : *code.programs())
    addUses(flatten(code, *program, {kNowhere, kNowhere, kNowhere}), uses);
  return uses;
}

bool hasProducts(const artifact::DeviceCode &code) {
  for (const artifact::Kernel *kernel : *code.kernels())
    if (kernel->gemm())
      return true;
  return false;
}

double seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What choices hold for: this code on such a GPU with that library.
std::string keyOf(const ArtifactReader &artifact,
                  const artifact::DeviceCode &code, std::string_view target,
                  const Gpu &gpu, const Library &library) {
  Hasher64 hasher;
  for (const artifact::CodeObject *object : *code.code())
    if (toView(object->target()) == target)
      hasher.update(std::as_bytes(
          std::span(object->elf()->data(), object->elf()->size())));
  return fmt::format("{} {} {:016x} | {} of compute capability {} | driver for "
                     "CUDA {} | {}",
                     toView(artifact.root().program_hash()), target,
                     hasher.digest(), gpu.model(), gpu.capability(),
                     versionText(gpu.driver().cudaVersion()), library.name());
}

bool isLarge(const artifact::Gemm &gemm) {
  return 2.0 * static_cast<double>(gemm.m()) * static_cast<double>(gemm.n()) *
             static_cast<double>(gemm.k()) *
             static_cast<double>(gemm.batches()) >=
         static_cast<double>(kLibraryFlops);
}

} // namespace

StatusOr<Tuning> parseTuning(const DeviceOptions &options) {
  std::string_view text = options.tune;
  if (const char *environment = std::getenv("TESSERA_TUNE");
      text.empty() && environment)
    text = environment;
  Tuning tuning;
  if (text.empty() || text == "on")
    return tuning;
  if (text == "off")
    tuning.mode = Tuning::Mode::fixed;
  else if (text == kGenerated)
    tuning.mode = Tuning::Mode::generated;
  else if (const auto [end, error] = std::from_chars(
               text.data(), text.data() + text.size(), tuning.seconds);
           error != std::errc() || end != text.data() + text.size() ||
           !(tuning.seconds >= 0))
    return Status::error("TESSERA_TUNE is '{}': use on, off, generated or a "
                         "number of seconds",
                         text);
  return tuning;
}

/// Chooses kernel by kernel.
class ProductChooser {
public:
  ProductChooser(Products &products, LoadedModules &modules,
                 const std::shared_ptr<Gpu> &gpu, const Tuning &tuning,
                 TuningFile file)
      : products(products), modules(modules), gpu(gpu), tuning(tuning),
        file(std::move(file)), started(seconds()) {}

  /// What goes wrong leaves the generated kernel.
  void choose(std::uint32_t index, const Use &use) {
    ++total;
    const Status status = tryToChoose(index, use);
    if (!status.ok())
      say(toView(use.launch.kernel->name()), status.message());
  }

  std::string finish() {
    if (const Status status = file.write(); !status.ok())
      say("tuning", status.message());
    std::string text =
        fmt::format("{} computes {} of {} products", products.library->name(),
                    products.used.size(), total);
    if (!trouble.empty())
      text += fmt::format(" ({})", trouble);
    return text;
  }

private:
  Status tryToChoose(std::uint32_t index, const Use &use);
  /// The name of the best candidate that computes what the first one does.
  StatusOr<std::string> timeAll(Trial &trial,
                                std::span<const Candidate> candidates,
                                const artifact::Kernel &kernel);
  /// The first thing that went wrong; people are told one line.
  void say(std::string_view what, std::string_view message) {
    if (trouble.empty())
      trouble = fmt::format("{}: {}", what, message);
  }

  Products &products;
  LoadedModules &modules;
  const std::shared_ptr<Gpu> &gpu;
  const Tuning &tuning;
  TuningFile file;
  double started;
  std::size_t total = 0;
  std::string trouble;
};

Status ProductChooser::tryToChoose(std::uint32_t index, const Use &use) {
  LoadedKernel &loaded = modules.kernels[index];
  const artifact::Kernel &kernel = *use.launch.kernel;
  const std::string_view name = toView(kernel.name());
  auto created = Product::create(products.library, kernel, use.alignment);
  if (!created.ok())
    return created.status();
  std::unique_ptr<Product> product = created.take();
  if (!product || product->ways() == 0)
    return Status::success();

  const bool isTimed = tuning.mode == Tuning::Mode::timed;
  std::optional<std::string> choice;
  if (isTimed)
    choice = file.find(name);
  if (choice == kGenerated)
    return Status::success();
  const bool mayTime = isTimed && seconds() - started < tuning.seconds;
  if (!choice && !mayTime && !isLarge(*kernel.gemm())) {
    if (isTimed)
      file.set(name, std::string(kGenerated));
    return Status::success();
  }

  auto trial = Trial::create(gpu, use.launch, use.instance, modules.kernels);
  if (!trial.ok())
    return trial.status();
  std::vector<Candidate> candidates = {trial->generated()};
  for (std::size_t way = 0; way < product->ways(); ++way)
    candidates.push_back({fmt::format("{}:{}", kLibraryPrefix, way),
                          [&product = *product, way](void *const *arguments) {
                            return product.enqueue(way, arguments);
                          }});
  if (choice && std::none_of(candidates.begin(), candidates.end(),
                             [&](const Candidate &candidate) {
                               return candidate.name == *choice;
                             }))
    choice.reset(); // from a file that somebody wrote
  if (!choice && mayTime) {
    auto best = timeAll(*trial, candidates, kernel);
    if (!best.ok())
      return best.status();
    choice = best.take();
    file.set(name, *choice);
  }
  if (!choice) {
    choice = candidates[isLarge(*kernel.gemm())].name;
    if (isTimed) // the next start computes the same bits
      file.set(name, *choice);
  }
  for (std::size_t way = 0; way < product->ways(); ++way) {
    if (candidates[way + 1].name != *choice)
      continue;
    TESSERA_RETURN_IF_ERROR(trial->run(candidates[way + 1]));
    loaded.product = product.get();
    loaded.way = way;
    loaded.label = fmt::format("{} by cuBLASLt", name);
    products.used.push_back(std::move(product));
    break;
  }
  return Status::success();
}

StatusOr<std::string>
ProductChooser::timeAll(Trial &trial, std::span<const Candidate> candidates,
                        const artifact::Kernel &kernel) {
  const std::uint32_t result = kernel.gemm()->result()->buffer();
  const auto expected = trial.results(candidates[0], result);
  if (!expected.ok())
    return expected.status();
  const auto first = trial.time(candidates[0]);
  if (!first.ok())
    return first.status();
  std::string best = candidates[0].name;
  double least = *first;
  for (const Candidate &candidate : candidates.subspan(1)) {
    const auto actual = trial.results(candidate, result);
    if (!actual.ok()) {
      say(toView(kernel.name()), actual.message());
      continue;
    }
    if (!agree(*expected, *actual, kernel.gemm()->k(),
               kernel.element_types()->Get(result))) {
      say(toView(kernel.name()),
          fmt::format("{} computes something else", candidate.name));
      continue;
    }
    const auto time = trial.time(candidate);
    if (!time.ok()) {
      say(toView(kernel.name()), time.message());
    } else if (*time < least) {
      least = *time;
      best = candidate.name;
    }
  }
  return best;
}

Products Products::choose(const ArtifactReader &artifact,
                          const artifact::DeviceCode &code,
                          LoadedModules &modules,
                          const std::shared_ptr<Gpu> &gpu,
                          const Tuning &tuning) {
  Products products;
  if (tuning.mode == Tuning::Mode::generated || !hasProducts(code))
    return products;
  auto library = Library::load(gpu);
  if (!library.ok()) {
    products.text = fmt::format("no cuBLASLt ({}): generated kernels compute "
                                "all products",
                                library.message());
    return products;
  }
  products.library = library.take();
  ProductChooser chooser(products, modules, gpu, tuning,
                         TuningFile(keyOf(artifact, code, modules.target, *gpu,
                                          *products.library)));
  for (const auto &[index, use] : findUses(code))
    chooser.choose(index, use);
  products.text = chooser.finish();
  if (products.used.empty())
    products.library.reset(); // and its workspace
  return products;
}

} // namespace tessera::hal::cuda
