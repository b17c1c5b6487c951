#include "runtime/tune/TrainingService.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/serve/ApiFields.h"
#include "runtime/support/Text.h"
#include "runtime/tune/AdapterCheckpoint.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

namespace tessera::tune {
namespace {

using Json = nlohmann::ordered_json;
using serve::ApiError;
using serve::RouteId;
using serve::TrainingRequest;
using serve::TrainingResult;

ApiError invalid(std::string message, std::string param = "") {
  return {400, std::move(message), std::move(param), "invalid_value"};
}

ApiError failed(const Status &status) {
  return {500, status.message(), "", "learner_failed"};
}

ApiError unknown(const std::string &name) {
  return {404, fmt::format("unknown adapter {}", quote(name)), "adapter",
          "model_not_found"};
}

ApiError shuttingDown() {
  return {503, "the server is shutting down", "", "shutting_down"};
}

/// What may be a name of an adapter, and of a directory without escaping from
/// the one that it is in.
bool isPlainName(std::string_view name) {
  constexpr std::size_t kMost = 64;
  return !name.empty() && name.size() <= kMost &&
         std::isalnum((unsigned char)name[0]) != 0 &&
         std::ranges::all_of(name, [](unsigned char c) {
           return c < 128 &&
                  (std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-');
         });
}

/// The only members that the body may have.
std::optional<ApiError>
checkMembers(const JsonValue &body,
             std::initializer_list<std::string_view> known) {
  for (const auto &[name, value] : body.members())
    if (std::ranges::count(known, name) == 0)
      return invalid(fmt::format("unknown field {}", quote(name)), name);
  return std::nullopt;
}

/// The member that names an adapter or a directory.
std::variant<std::string, ApiError> plainName(const JsonValue &body,
                                              const std::string &field) {
  std::string_view name;
  if (!body[field].get(name) || !isPlainName(name))
    return invalid(field + " must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and "
                           "'-', and not begin with one of the last three",
                   field);
  return std::string(name);
}

Json described(const std::string &name, const Progress &progress) {
  return {
      {"name", name}, {"step", progress.steps}, {"batches", progress.batches}};
}

} // namespace

StatusOr<std::unique_ptr<TrainingService>>
TrainingService::create(std::unique_ptr<SessionModel> model,
                        TrainingOptions options) {
  auto learner = AdapterLearner::create(*model);
  if (!learner.ok())
    return learner.status();
  std::unique_ptr<TrainingService> service(
      new TrainingService(std::move(model), std::move(options)));
  service->learner = learner.take();
  const ModelFacts &facts = service->model->facts();
  service->shape = {facts.microbatches * facts.rows, facts.sequence,
                    facts.vocabSize, facts.sequence, facts.documents};
  const recipe::Recipe &recipe = service->learner->recipe().values;
  if (recipe.task == recipe::Task::Policy)
    service->shape.documents = recipe.policy.documents;
  // Signals are for the server's thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  service->thread =
      std::jthread([service = service.get()] { service->loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return service;
}

TrainingService::~TrainingService() { stop(); }

//===--- the queue --------------------------------------------------------===//

bool TrainingService::submit(TrainingRequest request,
                             std::function<void(TrainingResult)> done) {
  std::lock_guard lock(mutex);
  const std::size_t bytes = request.body.size();
  if (isStopping || waiting.size() >= options.maxRequests ||
      waitingBytes + bytes > options.maxBytes)
    return false;
  waitingBytes += bytes;
  waiting.emplace_back(std::move(request), std::move(done));
  changed.notify_all();
  return true;
}

void TrainingService::stop() {
  {
    std::lock_guard lock(mutex);
    isStopping = true;
    changed.notify_all();
  }
  if (thread.joinable())
    thread.join();
  for (Work &work : std::exchange(waiting, {}))
    work.second(shuttingDown());
}

void TrainingService::loop() {
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return isStopping || !waiting.empty(); });
      if (isStopping)
        return;
      work = std::move(waiting.front());
      waiting.pop_front();
      waitingBytes -= work.first.body.size();
    }
    // Its connection ends on the server's thread in any case.
    if (work.first.isGone && *work.first.isGone)
      work.second(invalid("the client has disconnected"));
    else
      work.second(run(work.first));
  }
}

TrainingResult TrainingService::run(const TrainingRequest &request) {
  if (request.route == RouteId::trainedAdapters)
    return list();
  const std::string &name = request.adapter;
  const bool isNamed = request.route != RouteId::createAdapter;
  if (isNamed && !learner->adapters().contains(name))
    return unknown(name);
  if (request.route == RouteId::deleteAdapter)
    return erase(name);
  auto parsed = serve::parseBody(request.body.empty() ? "{}" : request.body);
  if (const auto *error = std::get_if<ApiError>(&parsed))
    return *error;
  const auto *body = std::get_if<JsonValue>(&parsed);
  switch (request.route) {
  case RouteId::createAdapter:
    return create(*body);
  case RouteId::forwardBackward:
    return forwardBackward(name, *body);
  case RouteId::optimStep:
    return optimStep(name, *body);
  case RouteId::saveAdapter:
    return save(name, *body);
  default:
    return load(name, *body);
  }
}

Status TrainingService::publish(const std::string &name) {
  auto adapter = learner->adapter(name);
  if (!adapter.ok())
    return adapter.status();
  return publisher->publish(name, *adapter);
}

//===--- adapters ---------------------------------------------------------===//

TrainingResult TrainingService::create(const JsonValue &body) {
  if (auto error = checkMembers(body, {"name", "seed"}))
    return *error;
  auto name = plainName(body, "name");
  if (const auto *error = std::get_if<ApiError>(&name))
    return *error;
  const auto &own = std::get<std::string>(name);
  constexpr int64_t kMostSeed = int64_t(1) << 53;
  int64_t seed = 0;
  if (!body["seed"].isNull() &&
      (!body["seed"].get(seed) || seed < 0 || seed >= kMostSeed))
    return invalid("seed must be an integer from 0 to 2^53 - 1", "seed");
  if (learner->adapters().contains(own) || publisher->isTaken(own))
    return invalid(fmt::format("the name {} is used already", quote(own)),
                   "name");
  if (int64_t(learner->adapters().size()) >= options.adapters)
    return ApiError{409,
                    fmt::format("{} adapters are trained already; delete one, "
                                "or start the server with a larger --train",
                                options.adapters),
                    "", "too_many_adapters"};
  if (Status status = learner->add(own, seed); !status.ok())
    return failed(status);
  if (Status status = publish(own); !status.ok()) {
    learner->remove(own);
    return failed(status);
  }
  return described(own, learner->adapters().at(own)).dump();
}

TrainingResult TrainingService::list() const {
  Json all = Json::array();
  for (const auto &[name, progress] : learner->adapters())
    all.push_back(described(name, progress));
  return Json{{"object", "list"}, {"data", all}}.dump();
}

TrainingResult TrainingService::erase(const std::string &name) {
  publisher->withdraw(name);
  learner->remove(name);
  return Json{{"id", name}, {"object", "adapter"}, {"deleted", true}}.dump();
}

//===--- steps ------------------------------------------------------------===//

TrainingResult TrainingService::forwardBackward(const std::string &name,
                                                const JsonValue &body) {
  if (auto error = checkMembers(body, {"examples"}))
    return *error;
  auto examples = readExamples(body["examples"], shape);
  if (!examples.ok())
    return invalid(examples.message(), "examples");
  auto packed = PackedExamples::pack(*examples, shape);
  if (!packed.ok())
    return invalid(packed.message(), "examples");
  double sum = 0, terms = 0;
  int64_t tokens = 0;
  for (std::size_t i = 0; i < packed->batches(); ++i) {
    if (isStopping)
      return shuttingDown();
    const TokenBuffers batch = packed->batch(i);
    auto gradients = learner->forwardBackward(name, batch.view());
    if (!gradients.ok())
      return failed(gradients.status());
    sum += gradients->loss * gradients->terms;
    terms += gradients->terms;
    tokens += gradients->tokens;
  }
  return Json{{"loss", terms > 0 ? sum / terms : 0},
              {"tokens", tokens},
              {"terms", terms}}
      .dump();
}

namespace {

/// A number of a step's settings, which programs read in fp32.
struct Setting {
  const char *name;
  float least; ///< itself allowed
  std::optional<double> *to;
  bool isOfAdam = false; ///< SGD has no such number
};

constexpr float kLeastEps = 1e-30f, kLeastDivisor = 1e-30f;

std::optional<ApiError> readSetting(const JsonValue &body,
                                    const Setting &setting, bool isAdam) {
  const JsonValue &value = body[setting.name];
  double number = 0;
  if (value.isNull())
    return std::nullopt;
  if (setting.isOfAdam && !isAdam)
    return invalid(
        fmt::format("{} has no effect: the optimizer is sgd", setting.name),
        setting.name);
  if (!value.get(number) || !std::isfinite(float(number)) ||
      float(number) < setting.least)
    return invalid(fmt::format("{} must be a number from {:g} that fits fp32",
                               setting.name, setting.least),
                   setting.name);
  *setting.to = number;
  return std::nullopt;
}

std::optional<ApiError> readBetas(const JsonValue &betas,
                                  StepSettings &settings, bool isAdam) {
  if (betas.isNull())
    return std::nullopt;
  if (!isAdam)
    return invalid("betas have no effect: the optimizer is sgd", "betas");
  const auto isBeta = [](const JsonValue &value, std::optional<double> &to) {
    double number = -1;
    const bool fits = value.get(number) && number >= 0 && float(number) < 1;
    to = number;
    return fits;
  };
  if (betas.elements().size() != 2 ||
      !isBeta(betas.elements()[0], settings.beta1) ||
      !isBeta(betas.elements()[1], settings.beta2))
    return invalid("betas must be two numbers from 0 to below 1, in fp32",
                   "betas");
  return std::nullopt;
}

} // namespace

TrainingResult TrainingService::optimStep(const std::string &name,
                                          const JsonValue &body) {
  if (auto error = checkMembers(body, {"lr", "betas", "eps", "weight_decay",
                                       "clip", "divisor", "publish"}))
    return *error;
  StepSettings settings;
  std::optional<double> divisor;
  const bool isAdam =
      learner->recipe().values.optimizer.name == recipe::OptimizerKind::AdamW;
  for (const Setting &setting :
       {Setting{"lr", 0, &settings.lr},
        Setting{"eps", kLeastEps, &settings.eps, /*isOfAdam=*/true},
        Setting{"weight_decay", 0, &settings.weightDecay},
        Setting{"clip", 0, &settings.clip},
        Setting{"divisor", kLeastDivisor, &divisor}})
    if (auto error = readSetting(body, setting, isAdam))
      return *error;
  if (auto error = readBetas(body["betas"], settings, isAdam))
    return *error;
  bool publishes = true;
  if (!body["publish"].isNull() && !body["publish"].get(publishes))
    return invalid("publish must be true or false", "publish");
  if (learner->adapters().at(name).batches == 0)
    return invalid(
        "no gradients since the last step; send forward_backward first");
  auto step = learner->optimizerStep(name, settings, divisor);
  if (!step.ok())
    return failed(step.status());
  if (publishes)
    if (Status status = publish(name); !status.ok())
      return failed(Status::error(
          "step {} of {} was made and not published: {}",
          learner->adapters().at(name).steps, quote(name), status.message()));
  return Json{{"step", learner->adapters().at(name).steps},
              {"lr", step->lr},
              {"grad_norm", step->gradNorm}}
      .dump();
}

//===--- files ------------------------------------------------------------===//

namespace {

std::variant<std::string, ApiError>
directoryOf(const JsonValue &body, const TrainingOptions &options) {
  if (auto error = checkMembers(body, {"path"}))
    return *error;
  if (options.directory.empty())
    return ApiError{403,
                    "adapters are saved and loaded only by a server that was "
                    "started with --train-directory",
                    "", "not_supported"};
  auto path = plainName(body, "path");
  if (auto *name = std::get_if<std::string>(&path))
    return options.directory + "/" + *name;
  return path;
}

} // namespace

TrainingResult TrainingService::save(const std::string &name,
                                     const JsonValue &body) {
  auto directory = directoryOf(body, options);
  if (const auto *error = std::get_if<ApiError>(&directory))
    return *error;
  const auto &path = std::get<std::string>(directory);
  if (Status status = checkNewDirectory(path); !status.ok())
    return invalid(status.message(), "path");
  if (Status status = saveAdapter(*learner, name, path); !status.ok())
    return failed(status);
  return described(name, learner->adapters().at(name)).dump();
}

TrainingResult TrainingService::load(const std::string &name,
                                     const JsonValue &body) {
  auto directory = directoryOf(body, options);
  if (const auto *error = std::get_if<ApiError>(&directory))
    return *error;
  if (Status status =
          loadAdapter(*learner, name, std::get<std::string>(directory));
      !status.ok())
    return invalid(status.message(), "path");
  if (Status status = publish(name); !status.ok())
    return failed(status);
  return described(name, learner->adapters().at(name)).dump();
}

} // namespace tessera::tune
