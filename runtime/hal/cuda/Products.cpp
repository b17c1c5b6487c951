#include "runtime/hal/cuda/Products.h"

#include "runtime/artifact/ElementTypes.h"
#include "runtime/hal/cuda/KernelUses.h"
#include "runtime/hal/cuda/TuningFile.h"
#include "runtime/support/Hash.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>

namespace tessera::hal::cuda {

using artifact::toView;

namespace {

constexpr std::string_view kGenerated = "generated", kVariantPrefix = "variant",
                           kLibraryPrefix = "library";

bool hasProducts(const std::map<std::uint32_t, KernelUse> &uses) {
  return std::any_of(uses.begin(), uses.end(), [](const auto &use) {
    return use.second.launch.kernel->gemm();
  });
}

double seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What choices hold for: this code on such a GPU with that library, if any.
std::string keyOf(const ArtifactReader &artifact,
                  const artifact::DeviceCode &code, std::string_view target,
                  const Gpu &gpu, const Library *library) {
  Hasher64 hasher;
  for (const artifact::CodeObject *object : *code.code())
    if (toView(object->target()) == target)
      hasher.update(std::as_bytes(
          std::span(object->elf()->data(), object->elf()->size())));
  return fmt::format("{} {} {:016x} | {} of compute capability {} | driver for "
                     "CUDA {} | {}",
                     toView(artifact.root().program_hash()), target,
                     hasher.digest(), gpu.model(), gpu.capability(),
                     versionText(gpu.driver().cudaVersion()),
                     library ? library->name() : "no library");
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

namespace {

/// A candidate for a kernel's work: itself, a variant, or an algorithm of the
/// library.
struct Way {
  std::string name; ///< in files of choices
  const artifact::Variant *variant = nullptr;
  std::optional<std::size_t> ofLibrary = {};
};

/// The kernel itself first. `product` may be null.
std::vector<Way> waysOf(const artifact::Kernel &kernel,
                        const Product *product) {
  std::vector<Way> ways = {{std::string(kGenerated)}};
  if (hasVariants(kernel))
    for (const artifact::Variant *variant : *kernel.variants())
      ways.push_back(
          {fmt::format("{}:{}", kVariantPrefix, ways.size() - 1), variant});
  for (std::size_t i = 0; product && i < product->ways(); ++i)
    ways.push_back({fmt::format("{}:{}", kLibraryPrefix, i), nullptr, i});
  return ways;
}

} // namespace

/// Chooses kernel by kernel.
class ProductChooser {
public:
  ProductChooser(Products &products, const artifact::DeviceCode &code,
                 LoadedModules &modules, const std::shared_ptr<Gpu> &gpu,
                 const Tuning &tuning, TuningFile file)
      : products(products), code(code), modules(modules), gpu(gpu),
        tuning(tuning), file(std::move(file)), started(seconds()) {}

  /// What goes wrong leaves the generated kernel.
  void choose(const KernelUse &use) {
    total += use.launch.kernel->gemm() != nullptr;
    const Status status = tryToChoose(use);
    if (!status.ok())
      say(toView(use.launch.kernel->name()), status.message());
  }

  /// The summary for display; `missing` says why the library is absent, if it
  /// is.
  std::string finish(std::string_view missing);

private:
  /// A kernel and its candidates.
  struct Contest {
    const KernelUse &use;
    const Product *product; ///< may be null
    std::vector<Way> ways;
  };
  Status tryToChoose(const KernelUse &use);
  StatusOr<std::unique_ptr<Product>> productFor(const KernelUse &use) const;
  StatusOr<Trial> trialOf(const Contest &contest) const {
    return Trial::create(gpu, contest.use.launch, contest.use.instance,
                         modules.kernels);
  }
  StatusOr<Candidate> candidate(Trial &trial, const Contest &contest,
                                const Way &way) const;
  /// The fastest of those that compute what the kernel itself does.
  StatusOr<std::string> timeAll(const Contest &contest);
  /// Nothing if the way fails or computes something else, which is said.
  std::optional<double> timeOf(Trial &trial, const Contest &contest,
                               const Way &way, const Results &expected);
  Status take(const Way &way, const Contest &contest, bool hasRun);
  /// Records the first failure only; the summary has one line.
  void say(std::string_view what, std::string_view message) {
    if (trouble.empty())
      trouble = fmt::format("{}: {}", what, message);
  }

  Products &products;
  const artifact::DeviceCode &code;
  LoadedModules &modules;
  const std::shared_ptr<Gpu> &gpu;
  const Tuning &tuning;
  TuningFile file;
  double started;
  std::size_t total = 0, variants = 0;
  std::string trouble;
};

StatusOr<std::unique_ptr<Product>>
ProductChooser::productFor(const KernelUse &use) const {
  if (!products.library || !use.launch.kernel->gemm())
    return std::unique_ptr<Product>();
  return Product::create(products.library, *use.launch.kernel, use.alignment);
}

Status ProductChooser::tryToChoose(const KernelUse &use) {
  const artifact::Kernel &kernel = *use.launch.kernel;
  const std::string_view name = toView(kernel.name());
  auto created = productFor(use);
  if (!created.ok())
    return created.status();
  std::unique_ptr<Product> product = created.take();
  const Contest contest{use, product.get(), waysOf(kernel, product.get())};
  if (contest.ways.size() == 1)
    return Status::success();

  const auto find = [&](const std::optional<std::string> &choice) {
    return std::find_if(contest.ways.begin(), contest.ways.end(),
                        [&](const Way &way) { return way.name == choice; });
  };
  const bool isTimed = tuning.mode == Tuning::Mode::timed;
  auto way = contest.ways.end(); // also if another program wrote the file
  if (isTimed)
    way = find(file.find(name));
  const bool isKnown = way != contest.ways.end();
  const bool isNew =
      !isKnown && isTimed && seconds() - started < tuning.seconds;
  if (isNew) {
    auto best = timeAll(contest);
    if (!best.ok())
      return best.status();
    way = find(*best);
  } else if (!isKnown) {
    const bool byLibrary =
        product && product->ways() && isLarge(*kernel.gemm());
    way = find(byLibrary ? fmt::format("{}:0", kLibraryPrefix)
                         : std::string(kGenerated));
  }
  if (isTimed && !isKnown) // the next start computes the same bits
    file.set(name, way->name);
  TESSERA_RETURN_IF_ERROR(take(*way, contest, isNew));
  if (way->ofLibrary)
    products.used.push_back(std::move(product));
  return Status::success();
}

Status ProductChooser::take(const Way &way, const Contest &contest,
                            bool hasRun) {
  LoadedKernel &loaded = modules.kernels[contest.use.launch.kernelIndex];
  loaded.variant = way.variant;
  variants += way.variant != nullptr;
  if (!way.ofLibrary)
    return Status::success();
  if (!hasRun) {
    auto trial = trialOf(contest);
    if (!trial.ok())
      return trial.status();
    const auto it = candidate(*trial, contest, way);
    if (!it.ok())
      return it.status();
    TESSERA_RETURN_IF_ERROR(trial->run(*it));
  }
  loaded.product = contest.product;
  loaded.way = *way.ofLibrary;
  loaded.label =
      fmt::format("{} by cuBLASLt", toView(contest.use.launch.kernel->name()));
  return Status::success();
}

StatusOr<Candidate> ProductChooser::candidate(Trial &trial,
                                              const Contest &contest,
                                              const Way &way) const {
  if (way.ofLibrary)
    return Candidate{way.name, [product = contest.product,
                                i = *way.ofLibrary](void *const *arguments) {
                       return product->enqueue(i, arguments);
                     }};
  LaunchCommand launch = contest.use.launch;
  if (way.variant) {
    launch.kernelIndex = way.variant->kernel();
    launch.kernel = code.kernels()->Get(launch.kernelIndex);
    launch.blocks = static_cast<std::uint32_t>(way.variant->blocks());
  }
  return trial.generated(way.name, launch);
}

StatusOr<std::string> ProductChooser::timeAll(const Contest &contest) {
  auto trial = trialOf(contest);
  if (!trial.ok())
    return trial.status();
  const auto itself = candidate(*trial, contest, contest.ways.front());
  if (!itself.ok())
    return itself.status();
  const auto expected = trial->results(*itself);
  if (!expected.ok())
    return expected.status();
  const auto first = trial->time(*itself);
  if (!first.ok())
    return first.status();
  std::string best = itself->name;
  double least = *first;
  for (const Way &way : std::span(contest.ways).subspan(1))
    if (const auto time = timeOf(*trial, contest, way, *expected);
        time && *time < least) {
      least = *time;
      best = way.name;
    }
  return best;
}

std::optional<double> ProductChooser::timeOf(Trial &trial,
                                             const Contest &contest,
                                             const Way &way,
                                             const Results &expected) {
  const artifact::Kernel &kernel = *contest.use.launch.kernel;
  const auto fail = [&](std::string_view why) {
    say(toView(kernel.name()), why);
    return std::nullopt;
  };
  const auto it = candidate(trial, contest, way);
  if (!it.ok())
    return fail(it.message());
  const auto actual = trial.results(*it);
  if (!actual.ok())
    return fail(actual.message());
  const std::uint64_t terms =
      kernel.gemm() ? kernel.gemm()->k() : kernel.terms();
  if (!agree(expected, *actual, terms))
    return fail(fmt::format("{} computes something else", way.name));
  const auto time = trial.time(*it);
  if (!time.ok())
    return fail(time.message());
  return *time;
}

std::string ProductChooser::finish(std::string_view missing) {
  if (const Status status = file.write(); !status.ok())
    say("tuning", status.message());
  std::string text;
  if (!missing.empty())
    text = fmt::format("no cuBLASLt ({}): generated kernels compute all "
                       "products",
                       missing);
  else if (products.library)
    text = fmt::format("{} computes {} of {} products",
                       products.library->name(), products.used.size(), total);
  if (variants)
    text += fmt::format("{}{} kernel{} run{} as a variant that is faster here",
                        text.empty() ? "" : "; ", variants,
                        variants == 1 ? "" : "s", variants == 1 ? "s" : "");
  if (!trouble.empty())
    text += fmt::format("{}({})", text.empty() ? "" : " ", trouble);
  return text;
}

Products Products::choose(const ArtifactReader &artifact,
                          const artifact::DeviceCode &code,
                          LoadedModules &modules,
                          const std::shared_ptr<Gpu> &gpu,
                          const Tuning &tuning) {
  Products products;
  if (tuning.mode == Tuning::Mode::generated)
    return products;
  const auto uses = findUses(code);
  if (uses.empty())
    return products;
  std::string missing;
  if (hasProducts(uses)) {
    auto library = Library::load(gpu);
    if (library.ok())
      products.library = library.take();
    else
      missing = library.message();
  }
  ProductChooser chooser(products, code, modules, gpu, tuning,
                         TuningFile(keyOf(artifact, code, modules.target, *gpu,
                                          products.library.get())));
  for (const auto &[index, use] : uses)
    chooser.choose(use);
  products.text = chooser.finish(missing);
  if (products.used.empty())
    products.library.reset(); // and its workspace
  return products;
}

} // namespace tessera::hal::cuda
