# Renders the templates of a job of a BOSH release as a director does. Reads {"job": folder, "properties": {…}, "instance": {…}}
# from standard input, and writes {"rendered": {path: {"text": …} or {"error": …}}, "unused": [property]} for the templates and
# properties of the job's spec.

require "erb"
require "json"
require "ostruct"
require "yaml"

class UnknownProperty < StandardError
end

class UndeclaredProperty < StandardError
end

# What a template sees: `p`, `if_p`, `name`, `index` and `spec`.
class Template
  attr_reader :spec, :used

  # `properties` has a value, or nil, for the path of each declared property.
  def initialize(properties, instance)
    @properties = properties
    @spec = OpenStruct.new(instance)
    @used = []
  end

  def name
    spec.name
  end

  def index
    spec.index
  end

  # The value of the first of the properties that is set; the default, if there is one; an error otherwise.
  def p(names, *default)
    value = Array(names).map { |name| find(name) }.find { |found| !found.nil? }
    return value unless value.nil?
    return default.first unless default.empty?

    raise UnknownProperty, "Can't find property '#{Array(names).join("', or '")}'"
  end

  # Yields the values if all of the properties are set.
  def if_p(*names)
    values = names.map { |name| find(name) }
    yield(*values) if values.none?(&:nil?)
  end

  def render(file)
    ERB.new(File.read(file), trim_mode: "-").tap { |template| template.filename = file }.result(binding)
  end

  private

  # A director would find nothing, whatever the manifest says.
  def find(name)
    raise UndeclaredProperty, "the spec does not declare #{name}" unless @properties.key?(name)

    @used << name
    @properties[name]
  end
end

# A director passes only the properties that the spec declares, with their defaults.
def declared(spec, given)
  spec.fetch("properties", {}).to_h do |path, declaration|
    value = path.split(".").reduce(given) { |within, part| within.is_a?(Hash) ? within[part] : nil }
    [path, value.nil? ? declaration["default"] : value]
  end
end

input = JSON.parse($stdin.read)
spec = YAML.safe_load(File.read(File.join(input.fetch("job"), "spec")))
properties = declared(spec, input.fetch("properties"))
used = []
rendered = spec.fetch("templates").to_h do |source, target|
  template = Template.new(properties, input.fetch("instance"))
  text = template.render(File.join(input.fetch("job"), "templates", source))
  used.concat(template.used)
  [target, { text: text }]
rescue StandardError => e
  [target, { error: e.message }]
end
puts JSON.generate({ rendered: rendered, unused: properties.keys - used })
