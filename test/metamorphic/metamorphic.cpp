// Generates graphs and checks that every pass and kernel keeps their meaning;
// replays and reduces those that fail.
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "test/metamorphic/Check.h"
#include "test/metamorphic/CheckKernels.h"
#include "test/metamorphic/Generate.h"
#include "test/metamorphic/Reduce.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/WithColor.h"
#include <sys/wait.h>
#include <unistd.h>

using namespace tessera::metamorphic;
namespace cl = llvm::cl;

static cl::OptionCategory category("metamorphic");
static cl::opt<std::string> file(cl::Positional, cl::desc("FILE.mlir to check"),
                                 cl::cat(category));
static cl::opt<uint64_t> seed("seed", cl::desc("The first seed"), cl::init(0),
                              cl::cat(category));
static cl::opt<uint64_t> count("count", cl::desc("Seeds to check (default 1)"),
                               cl::init(1), cl::cat(category));
static cl::list<std::string>
    targets("targets", cl::CommaSeparated,
            cl::desc("Targets of kernels; all that this processor can run if "
                     "not given, none for 'none'"),
            cl::cat(category));
static cl::opt<bool> print("print", cl::desc("Print the module, check nothing"),
                           cl::cat(category));
static cl::opt<bool> shrink("reduce",
                            cl::desc("Print the smallest module found that "
                                     "fails as the given one does"),
                            cl::cat(category));

static int complain(const llvm::Twine &message) {
  llvm::WithColor::error(llvm::errs(), "metamorphic") << message << "\n";
  return 1;
}

static std::vector<std::string> chosenTargets() {
  if (targets.size() == 1 && targets[0] == "none")
    return {};
  return runnableTargets(std::vector<std::string>(targets));
}

// What became of a check in a process of its own, where it may crash: empty if
// nothing failed, "crash", or the stage that failed.
static std::string stageOfFailure(mlir::ModuleOp module) {
  int channel[2];
  if (pipe(channel))
    return "";
  pid_t child = fork();
  if (child == 0) {
    fclose(stderr);
    Counts counts;
    auto failure = check(module, chosenTargets(), counts);
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

static int reduceIt(mlir::ModuleOp module) {
  std::string stage = stageOfFailure(module);
  if (stage.empty())
    return complain("nothing fails here");
  auto smallest = reduceModule(module, [&](mlir::ModuleOp candidate) {
    return stageOfFailure(candidate) == stage;
  });
  llvm::outs() << "// Failed in: " << stage << "\n";
  smallest->print(llvm::outs());
  return 0;
}

static int checkIt(mlir::ModuleOp module, const std::string &name) {
  Counts counts;
  if (auto failure = check(module, chosenTargets(), counts))
    return complain(name + ", " + failure->stage + ": " + failure->message +
                    "\n" + failure->before + "\n" + failure->after);
  llvm::outs() << describe(counts) << "\n";
  return 0;
}

static int checkSeeds(mlir::MLIRContext &context) {
  Counts counts;
  std::vector<Report> reports =
      checkPassesOf(context, seed, seed + count, counts);
  for (const std::string &target : chosenTargets())
    for (Report &report :
         checkKernelsOf(context, seed, seed + count, target, counts))
      reports.push_back(std::move(report));
  for (const Report &report : reports)
    complain(describe(report));
  llvm::outs() << describe(counts) << "\n";
  return !reports.empty();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "checks that passes and kernels keep the meaning of generated graphs\n");
  mlir::DialectRegistry registry;
  registerKernelDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  if (file.empty() && count != 1 && !print && !shrink)
    return checkSeeds(context);
  auto module = file.empty()
                    ? generate(&context, seed)
                    : mlir::parseSourceFile<mlir::ModuleOp>(file, &context);
  if (!module)
    return 1;
  std::string name =
      file.empty() ? "seed " + std::to_string(seed) : std::string(file);
  if (print)
    module->print(llvm::outs());
  return print ? 0 : shrink ? reduceIt(*module) : checkIt(*module, name);
}
