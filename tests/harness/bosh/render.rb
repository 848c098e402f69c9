# Renders the templates of jobs of a BOSH release as a director does: with bosh's own library, if it is installed. For each line
# {"job": folder, "properties": {…}, "instance": {…}} of standard input it writes a line
# {"job": {"rendered": {path: {"text": …} or {"error": …}}, "unused": [property]}} for the templates and properties of the job's
# spec, or {"error": …} if they cannot be read. With the argument `--renderer` it writes which library renders.

require "erb"
require "json"
require "ostruct"
require "yaml"

class UndeclaredProperty < StandardError
end

# What a template sees without bosh's library: `p`, `if_p`, `name`, `index` and `spec`.
class OwnContext
  attr_reader :spec, :name, :index

  def initialize(spec, _dns_encoder)
    @properties = spec.fetch("properties")
    @spec = OpenStruct.new(spec)
    @name = spec["name"]
    @index = spec["index"]
  end

  def get_binding
    binding
  end

  # The value of the first of the properties that is set; the default, if there is one; an error otherwise.
  def p(names, *default)
    value = Array(names).map { |name| find(name) }.find { |found| !found.nil? }
    return value unless value.nil?
    return default.first unless default.empty?

    raise KeyError, "Can't find property '#{Array(names).join("', or '")}'"
  end

  # Yields the values if all of the properties are set.
  def if_p(*names)
    values = names.map { |name| find(name) }
    yield(*values) if values.none?(&:nil?)
  end

  private

  def find(name)
    @properties.dig(*name.split("."))
  end
end

# Notes the properties that a template looks up. A director finds nothing for one that the spec does not declare, whatever the
# manifest says; here it is an error.
module Noted
  attr_accessor :declared, :used

  def p(names, *default)
    note(Array(names))
    super
  end

  def if_p(*names, &block)
    note(names)
    super
  end

  private

  def note(names)
    names.each { |name| raise UndeclaredProperty, "the spec does not declare #{name}" unless declared.include?(name) }
    used.concat(names)
  end
end

# bosh's library by the gem that it is, or was, a part of: what to load, and its context.
LIBRARIES = {
  "bosh-common" => [%w[bosh/common bosh/common/template], "Bosh::Common::Template::EvaluationContext"],
  "bosh-template" => [%w[bosh/template/evaluation_context], "Bosh::Template::EvaluationContext"],
}.freeze

# The name and the context of the renderer.
def renderer
  LIBRARIES.each do |name, (paths, context)|
    paths.each { |path| require path }
    return [name, Object.const_get(context)]
  rescue LoadError
    next
  end
  ["own", OwnContext]
end

# A director passes only the properties that the spec declares, with their defaults.
def declared(spec, given)
  spec.fetch("properties", {}).each_with_object({}) do |(path, declaration), properties|
    *groups, last = path.split(".")
    value = given
    [*groups, last].each { |part| value = value.is_a?(Hash) ? value[part] : nil }
    groups.reduce(properties) { |within, part| within[part] ||= {} }[last] = value.nil? ? declaration["default"] : value
  end
end

def render_job(input, context_class)
  spec = YAML.safe_load(File.read(File.join(input.fetch("job"), "spec")))
  names = spec.fetch("properties", {}).keys
  properties = declared(spec, input.fetch("properties"))
  used = []
  rendered = spec.fetch("templates").to_h do |source, target|
    file = File.join(input.fetch("job"), "templates", source)
    context = context_class.new(input.fetch("instance").merge("properties" => properties), nil).extend(Noted)
    context.declared = names
    context.used = used
    template = ERB.new(File.read(file), trim_mode: "-").tap { |erb| erb.filename = file }
    [target, { text: template.result(context.get_binding) }]
  rescue StandardError => e
    [target, { error: e.message }]
  end
  { rendered: rendered, unused: names - used }
end

renderer_name, context_class = renderer
if ARGV == ["--renderer"]
  puts renderer_name
  exit
end
$stdout.sync = true
$stdin.each_line do |line|
  puts JSON.generate({ job: render_job(JSON.parse(line), context_class) })
rescue StandardError, ScriptError => e
  # This process goes on for other tests.
  puts JSON.generate({ error: e.full_message(highlight: false) })
end
