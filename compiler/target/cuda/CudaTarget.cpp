#include "compiler/target/cuda/CudaTarget.h"
#include "compiler/target/cuda/HostCode.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace tessera::cuda {

namespace {

/// One translation unit to be compiled to one object.
struct Job {
  bool emulated;
  bool ofVariants;             ///< optional: there is code without them, too
  std::vector<size_t> kernels; ///< into the shapes
  std::string text;
  std::string bytes;
  std::vector<KernelResources> resources;
  std::string ptx;
};

// Another compiler at the same path produces other code.
std::string identityOf(llvm::StringRef program) {
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(program, status))
    return program.str();
  return (program + "\n" + llvm::Twine(status.getSize()) + "\n" +
          llvm::Twine(
              status.getLastModificationTime().time_since_epoch().count()))
      .str();
}

class Compilation {
public:
  Compilation(llvm::ArrayRef<KernelShape> shapes, const TileTarget &target,
              const CompileOptions &options)
      : shapes(shapes), target(target), options(options),
        arch(llvm::StringRef(target.name).split(':').second) {
    std::string host = llvm::sys::Process::GetEnv("CXX").value_or("c++");
    if (auto path = llvm::sys::findProgramByName(host))
      host = *path;
    compilers[0] = identityOf(findNvcc());
    compilers[1] = identityOf(host);
  }

  llvm::Error run(std::vector<Job> &jobs);

private:
  llvm::Error compile(Job &job);
  llvm::Expected<Cubin> compileGood(const Job &job, llvm::Error failure);
  llvm::Error compileOrFind(Job &job, bool &found);
  std::string cacheKey(const Job &job) const;

  llvm::ArrayRef<KernelShape> shapes;
  const TileTarget &target;
  const CompileOptions &options;
  std::string arch;
  std::string compilers[2]; ///< of cubins and of code for the emulated GPU
};

// Everything that determines an object; the compiler's own executable
// represents its code and the device library.
std::string Compilation::cacheKey(const Job &job) const {
  std::string text = job.text + "\n" + (job.emulated ? "host" : arch) + "\n" +
                     compilers[job.emulated] + "\n" +
                     std::to_string(hashOfThisProgram());
  return llvm::toHex(llvm::BLAKE3::hash<20>(llvm::arrayRefFromStringRef(text)),
                     /*LowerCase=*/true);
}

// The job's kernels that pass the checks one by one, if `failure` is a failed
// check.
llvm::Expected<Cubin> Compilation::compileGood(const Job &job,
                                               llvm::Error failure) {
  if (!failure.isA<GateFailure>())
    return std::move(failure);
  llvm::consumeError(std::move(failure));
  llvm::SmallVector<llvm::StringRef> good;
  for (size_t kernel : job.kernels) {
    llvm::StringRef text = shapes[kernel].text;
    llvm::Expected<Cubin> alone =
        compileCubin(translationUnit(text, target), arch);
    if (alone)
      good.push_back(text);
    else if (llvm::Error error = alone.takeError(); error.isA<GateFailure>())
      llvm::consumeError(std::move(error));
    else
      return std::move(error);
  }
  if (good.empty())
    return Cubin();
  return compileCubin(translationUnit(good, target), arch);
}

llvm::Error Compilation::compile(Job &job) {
  if (job.emulated)
    return compileForHost(job.text).moveInto(job.bytes);
  llvm::Expected<Cubin> cubin = compileCubin(job.text, arch);
  if (!cubin && job.ofVariants)
    cubin = compileGood(job, cubin.takeError());
  if (!cubin)
    return cubin.takeError();
  job.bytes = std::move(cubin->bytes);
  job.resources = std::move(cubin->kernels);
  // PTX of sm_90a runs on no other chip.
  if (llvm::isDigit(arch.back()))
    job.ptx = std::move(cubin->ptx);
  return llvm::Error::success();
}

// What precedes a cubin in the cache: the name and the resources of each
// kernel.
std::string packResources(llvm::ArrayRef<KernelResources> kernels) {
  std::string text;
  for (const KernelResources &kernel : kernels)
    text +=
        llvm::formatv("{0} {1} {2} {3} {4} {5} {6}\n", kernel.name,
                      kernel.registers, kernel.sharedBytes, kernel.stackBytes,
                      kernel.spillBytes, kernel.hmma, kernel.hgmma);
  return text;
}

// False if the text was not written by packResources.
bool unpackResources(llvm::StringRef text,
                     std::vector<KernelResources> &kernels) {
  llvm::SmallVector<llvm::StringRef> lines, words;
  text.split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines) {
    words.clear();
    line.split(words, ' ');
    KernelResources kernel;
    if (words.size() != 7 || words[1].getAsInteger(10, kernel.registers) ||
        words[2].getAsInteger(10, kernel.sharedBytes) ||
        words[3].getAsInteger(10, kernel.stackBytes) ||
        words[4].getAsInteger(10, kernel.spillBytes) ||
        words[5].getAsInteger(10, kernel.hmma) ||
        words[6].getAsInteger(10, kernel.hgmma))
      return false;
    kernel.name = words[0].str();
    kernels.push_back(std::move(kernel));
  }
  return true;
}

llvm::Error Compilation::compileOrFind(Job &job, bool &found) {
  found = false;
  std::string key = options.cache ? cacheKey(job) : std::string();
  constexpr char kEnd = '\0'; // of the resources, and of PTX
  if (options.cache)
    if (std::optional<std::string> entry = options.cache->find(key)) {
      auto [header, code] = llvm::StringRef(*entry).split(kEnd);
      if (unpackResources(header, job.resources)) {
        auto [ptx, bytes] = code.split(kEnd);
        job.ptx = ptx.str();
        job.bytes = bytes.str();
        found = true;
        return llvm::Error::success();
      }
    }
  if (llvm::Error error = compile(job))
    return error;
  if (options.cache)
    options.cache->insert(key, packResources(job.resources) + kEnd + job.ptx +
                                   kEnd + job.bytes);
  return llvm::Error::success();
}

llvm::Error Compilation::run(std::vector<Job> &jobs) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  llvm::Error first = llvm::Error::success();
  auto work = [&] {
    for (size_t i = next++; i < jobs.size() && !failed; i = next++) {
      auto start = std::chrono::steady_clock::now();
      bool found;
      llvm::Error error = compileOrFind(jobs[i], found);
      std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - start;
      std::lock_guard lock(mutex);
      if (error && failed) {
        llvm::consumeError(std::move(error));
      } else if (error) {
        llvm::consumeError(std::move(first));
        first = std::move(error);
        failed = true;
      } else if (options.progress) {
        std::string what =
            llvm::Twine(jobs[i].kernels.size()).str() + " kernels";
        options.progress(what,
                         (jobs[i].emulated ? "cuda-emu:" : "cuda:") + arch,
                         spent.count(), found);
      }
    }
  };
  size_t processes = options.processes ? options.processes
                                       : std::thread::hardware_concurrency();
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(processes, jobs.size()); ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
  return first;
}

// The kernels of one translation unit: starting a compiler and reading the
// device library costs as much as a few kernels.
constexpr size_t kUnitBytes = 20 << 10;

std::vector<Job> makeJobs(llvm::ArrayRef<KernelShape> shapes,
                          const TileTarget &target,
                          const CompileOptions &options) {
  std::vector<std::vector<size_t>> units;
  for (bool ofVariants : {false, true}) {
    size_t room = 0;
    for (auto [i, shape] : llvm::enumerate(shapes)) {
      if (shape.isVariant != ofVariants)
        continue;
      if (shape.text.size() > room) {
        units.emplace_back();
        room = kUnitBytes;
      }
      units.back().push_back(i);
      room -= std::min(room, shape.text.size());
    }
  }
  std::vector<Job> jobs;
  for (bool emulated : {false, true}) {
    if (emulated ? !options.emulated : !options.cubins)
      continue;
    for (const std::vector<size_t> &unit : units) {
      llvm::SmallVector<llvm::StringRef> definitions;
      for (size_t kernel : unit)
        definitions.push_back(shapes[kernel].text);
      jobs.push_back({emulated,
                      shapes[unit.front()].isVariant,
                      unit,
                      translationUnit(definitions, target),
                      {},
                      {},
                      {}});
    }
  }
  return jobs;
}

} // namespace

llvm::Expected<CompiledKernels> compileKernels(mlir::ModuleOp module,
                                               const TileTarget &target,
                                               const CompileOptions &options) {
  llvm::Expected<PrintedKernels> printed = printKernels(module, target);
  if (!printed)
    return printed.takeError();
  CompiledKernels result;
  result.shapes = std::move(printed->kernels);
  std::vector<Job> jobs = makeJobs(result.shapes, target, options);
  if (llvm::Error error = Compilation(result.shapes, target, options).run(jobs))
    return std::move(error);
  llvm::StringMap<KernelResources> resources;
  for (Job &job : jobs)
    for (KernelResources &kernel : job.resources)
      resources[kernel.name] = kernel;
  auto isDropped = [&](const KernelShape &shape) {
    return options.cubins && shape.isVariant && !resources.count(shape.name);
  };
  for (Job &job : jobs) {
    KernelObject object{std::move(job.bytes), {}};
    for (size_t kernel : job.kernels)
      if (!isDropped(result.shapes[kernel]))
        object.kernels.push_back(result.shapes[kernel].name);
    if (object.kernels.empty())
      continue;
    if (!job.ptx.empty())
      result.ptx.push_back({std::move(job.ptx), object.kernels});
    (job.emulated ? result.emulated : result.cubins)
        .push_back(std::move(object));
  }
  llvm::erase_if(result.shapes, isDropped);
  if (options.cubins)
    for (const KernelShape &shape : result.shapes) {
      result.resources.push_back(resources.lookup(shape.name));
      // A check without data has not passed.
      if (result.resources.back().registers == 0)
        return llvm::createStringError(
            "kernel '" + shape.name +
            "': nvcc's log does not report its registers and spills; its "
            "format may have changed");
    }
  return result;
}

} // namespace tessera::cuda
