// Generates graphs and checks that every pass and kernel keeps their meaning;
// replays and reduces those that fail.
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "test/metamorphic/Check.h"
#include "test/metamorphic/CheckKernels.h"
#include "test/metamorphic/Generate.h"
#include "test/metamorphic/Reduce.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/WithColor.h"
#include <sys/wait.h>
#include <unistd.h>

using namespace tessera::metamorphic;
namespace cl = llvm::cl;

namespace {

// Copies: code generation runs the linker in this process, and lld sets LLVM's
// options back to their defaults.
struct Options {
  std::string file;
  uint64_t seed, count;
  std::vector<std::string> targets;
  bool print, reduce, spread;
};

} // namespace

static int makeError(const llvm::Twine &message) {
  llvm::WithColor::error(llvm::errs(), "metamorphic") << message << "\n";
  return 1;
}

// "2/4": the second of four equal parts of the seeds. False if it is none.
static bool takeShard(Options &options, llvm::StringRef shard) {
  auto [index, shards] = shard.split('/');
  uint64_t i, n;
  if (index.getAsInteger(10, i) || shards.getAsInteger(10, n) || i < 1 ||
      i > n || options.count % n != 0)
    return false;
  options.count /= n;
  options.seed += (i - 1) * options.count;
  return true;
}

static std::optional<Options> parseOptions(int argc, char **argv) {
  static cl::OptionCategory category("metamorphic");
  static cl::opt<std::string> file(
      cl::Positional, cl::desc("FILE.mlir to check"), cl::cat(category));
  static cl::opt<uint64_t> seed("seed", cl::desc("The first seed"), cl::init(0),
                                cl::cat(category));
  static cl::opt<uint64_t> count("count",
                                 cl::desc("Seeds to check (default 1)"),
                                 cl::init(1), cl::cat(category));
  static cl::opt<std::string> shard(
      "shard", cl::desc("I/N: the I-th of N equal parts of the seeds"),
      cl::cat(category));
  static cl::list<std::string> targets(
      "targets", cl::CommaSeparated,
      cl::desc("Targets of kernels; all that this processor can run if not "
               "given, none for 'none'"),
      cl::cat(category));
  static cl::opt<bool> spread(
      "spread", cl::desc("Run each seed's kernels on one of the targets only"),
      cl::cat(category));
  static cl::opt<bool> print(
      "print", cl::desc("Print the module, check nothing"), cl::cat(category));
  static cl::opt<bool> reduce(
      "reduce",
      cl::desc("Print the smallest module found that fails "
               "as the given one does"),
      cl::cat(category));
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "checks that passes and kernels keep the meaning of generated graphs\n");
  Options options{file,  seed,   count, std::vector<std::string>(targets),
                  print, reduce, spread};
  if (!shard.empty() && !takeShard(options, shard)) {
    makeError("--shard must be I/N with 1 <= I <= N and --count a multiple of "
              "N, got '" +
              shard + "'");
    return std::nullopt;
  }
  return options;
}

// The targets to run. Tells `log` which are left out because this processor
// lacks what they need.
static std::optional<std::vector<std::string>>
chooseTargets(const std::vector<std::string> &wanted, llvm::raw_ostream &log) {
  std::vector<std::string> chosen;
  if (wanted.size() == 1 && wanted[0] == "none")
    return chosen;
  std::vector<std::string> all;
  for (const tessera::TileTarget &target : tessera::cpuTileTargets())
    all.push_back(target.name);
  // On the emulated GPU, only where asked for: it is slow.
  std::vector<std::string> known = all;
  for (const tessera::TileTarget &target : tessera::cudaTileTargets())
    known.push_back(target.name);
  for (const std::string &target : wanted.empty() ? all : wanted) {
    if (!llvm::is_contained(known, target)) {
      makeError("unknown target '" + target + "'; there are " +
                llvm::join(known, ", "));
      return std::nullopt;
    }
    std::string missing = tessera::cpu::missingFeatures(target);
    if (missing.empty())
      chosen.push_back(target);
    else
      log << target << ": skipped, this processor lacks" << missing << "\n";
  }
  return chosen;
}

// What became of a check in a process of its own, where it may crash: empty if
// nothing failed, "crash", or the stage that failed.
static std::string stageOfFailure(mlir::ModuleOp module,
                                  llvm::ArrayRef<std::string> targets) {
  int channel[2];
  if (pipe(channel))
    return "";
  pid_t child = fork();
  if (child == 0) {
    fclose(stderr);
    Counts counts;
    auto failure = check(module, targets, counts);
    std::string stage = failure ? failure->stage : "";
    _exit(write(channel[1], stage.data(), stage.size()) < 0);
  }
  close(channel[1]);
  std::string stage;
  char buffer[256];
  for (ssize_t got; (got = read(channel[0], buffer, sizeof buffer)) > 0;)
    stage.append(buffer, got);
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "crash" : stage;
}

static int reduceIt(mlir::ModuleOp module,
                    llvm::ArrayRef<std::string> targets) {
  std::string stage = stageOfFailure(module, targets);
  if (stage.empty())
    return makeError("nothing fails here");
  auto smallest = reduceModule(module, [&](mlir::ModuleOp candidate) {
    return stageOfFailure(candidate, targets) == stage;
  });
  llvm::outs() << "// Failed in: " << stage << "\n";
  smallest->print(llvm::outs());
  return 0;
}

static int checkIt(mlir::ModuleOp module, const std::string &name,
                   llvm::ArrayRef<std::string> targets) {
  Counts counts;
  if (auto failure = check(module, targets, counts))
    return makeError(name + ", " + failure->stage + ": " + failure->message +
                     "\n" + failure->before + "\n" + failure->after);
  llvm::outs() << describe(counts) << "\n";
  return 0;
}

static int checkSeeds(mlir::MLIRContext &context, const Options &options,
                      llvm::ArrayRef<std::string> targets) {
  uint64_t first = options.seed, last = options.seed + options.count;
  Counts all;
  int failures = 0;
  auto report = [&](const Report &found) {
    ++failures;
    makeError(describe(found));
  };
  checkPassesOf(context, first, last, all, report);
  for (auto [i, target] : llvm::enumerate(targets)) {
    Counts counts;
    Share share;
    if (options.spread)
      share = {i, targets.size()};
    checkKernelsOf(context, first, last, target, share, counts, report);
    llvm::outs() << target << ": " << describeKernels(counts) << "\n";
    all += counts;
  }
  llvm::outs() << describe(all) << "; " << failures << " mismatches\n";
  return failures != 0;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  std::optional<Options> options = parseOptions(argc, argv);
  if (!options)
    return 1;
  mlir::DialectRegistry registry;
  registerKernelDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  // Where a module is printed, standard output has nothing else.
  bool printsModule = options->print || options->reduce;
  auto targets = chooseTargets(options->targets,
                               printsModule ? llvm::errs() : llvm::outs());
  if (!targets)
    return 1;
  if (options->file.empty() && options->count != 1)
    return checkSeeds(context, *options, *targets);
  auto module =
      options->file.empty()
          ? generate(&context, options->seed)
          : mlir::parseSourceFile<mlir::ModuleOp>(options->file, &context);
  if (!module)
    return 1;
  if (options->print)
    module->print(llvm::outs());
  if (options->print)
    return 0;
  if (options->reduce)
    return reduceIt(*module, *targets);
  std::string name = options->file.empty()
                         ? "seed " + std::to_string(options->seed)
                         : options->file;
  return checkIt(*module, name, *targets);
}
