//! A small training for the tests of rules: layers of neurons on two clouds of points, with the
//! gradients computed by hand and the tensors named as a hook names them.

/// What lies between layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Activation {
    Relu,
    Tanh,
    Sigmoid,
}

impl Activation {
    fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
        }
    }

    fn value(self, input: f32) -> f32 {
        match self {
            Self::Relu => input.max(0.0),
            Self::Tanh => input.tanh(),
            Self::Sigmoid => 1.0 / (1.0 + (-input).exp()),
        }
    }

    /// By what it gave.
    fn slope(self, output: f32) -> f32 {
        match self {
            Self::Relu => f32::from(u8::from(output > 0.0)),
            Self::Tanh => 1.0 - output * output,
            Self::Sigmoid => output * (1.0 - output),
        }
    }
}

/// A name, a shape and values.
pub(crate) type Named = (String, Vec<u64>, Vec<f32>);

/// Samples of a step.
const BATCH: usize = 32;

#[derive(Debug)]
struct Layer {
    inputs: usize,
    outputs: usize,
    weights: Vec<f32>,
    bias: Vec<f32>,
}

/// The network with its data.
#[derive(Debug)]
pub(crate) struct Network {
    layers: Vec<Layer>,
    activation: Activation,
    random: u64,
    /// Layers whose parameters are not trained.
    frozen: usize,
    /// Added to the input of the first activation: a unit that is pushed far enough never recovers.
    push: f32,
}

impl Network {
    /// Sizes of the layers, inputs first; weights are normal with Xavier's variance times `scale`².
    pub(crate) fn new(sizes: &[usize], activation: Activation, scale: f32, seed: u64) -> Self {
        let mut network = Self { layers: Vec::new(), activation, random: seed, frozen: 0, push: 0.0 };
        for pair in sizes.windows(2) {
            let (inputs, outputs) = (pair[0], pair[1]);
            let deviation = scale * (2.0 / (inputs + outputs) as f32).sqrt();
            let weights = (0..inputs * outputs).map(|_| deviation * network.normal()).collect();
            network.layers.push(Layer { inputs, outputs, weights, bias: vec![0.0; outputs] });
        }
        network
    }

    /// Leaves the parameters of the first layers as they are.
    pub(crate) fn frozen(self, frozen: usize) -> Self {
        Self { frozen, ..self }
    }

    /// Adds a constant to the input of the first activation.
    pub(crate) fn pushed(self, push: f32) -> Self {
        Self { push, ..self }
    }

    /// SplitMix64 (Steele, Lea and Flood 2014).
    fn uniform(&mut self) -> f32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 24) as f32
    }

    /// Irwin and Hall's sum of twelve.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    /// Points around +1 and -1, and which cloud each is of.
    fn batch(&mut self) -> (Vec<f32>, Vec<usize>) {
        let inputs = self.layers[0].inputs;
        let labels = Vec::from_iter((0..BATCH).map(|_| usize::from(self.uniform() < 0.5)));
        let mut points = Vec::new();
        for label in &labels {
            for _ in 0..inputs {
                let centre = if *label == 1 { 1.0 } else { -1.0 };
                points.push(centre + self.normal());
            }
        }
        (points, labels)
    }

    /// One step of gradient descent; what a hook saves of it.
    pub(crate) fn step(&mut self, rate: f32) -> Vec<Named> {
        let (points, labels) = self.batch();
        let mut saved = Vec::new();
        let name = self.activation.name();
        let mut outputs = vec![points];
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            saved.push((format!("Net_fc{index}.weight"), layer.shape(), layer.weights.clone()));
            saved.push((format!("Net_fc{index}.bias"), vec![layer.outputs as u64], layer.bias.clone()));
            let mut sums = layer.forward(&outputs[index]);
            if index < last {
                if index == 0 {
                    sums.iter_mut().for_each(|sum| *sum += self.push);
                }
                let shape = vec![BATCH as u64, layer.outputs as u64];
                let values = Vec::from_iter(sums.iter().map(|sum| self.activation.value(*sum)));
                saved.push((format!("Net_{name}{index}_input_0"), shape.clone(), sums));
                saved.push((format!("Net_{name}{index}_output_0"), shape, values.clone()));
                outputs.push(values);
            } else {
                outputs.push(sums);
            }
        }
        let (loss, mut slopes) = cross_entropy(&outputs[last + 1], &labels, self.layers[last].outputs);
        saved.push(("CrossEntropyLoss_output_0".to_owned(), Vec::new(), vec![loss]));
        saved.push(("predictions".to_owned(), vec![BATCH as u64, 2], outputs[last + 1].clone()));
        let labels = Vec::from_iter(labels.iter().map(|label| *label as f32));
        saved.push(("labels".to_owned(), vec![BATCH as u64], labels));
        for (index, layer) in self.layers.iter_mut().enumerate().rev() {
            let (weights, bias, mut below) = layer.backward(&outputs[index], &slopes);
            for (slope, output) in below.iter_mut().zip(&outputs[index]) {
                *slope *= if index > 0 { self.activation.slope(*output) } else { 1.0 };
            }
            saved.push((format!("gradient/Net_fc{index}.weight"), layer.shape(), weights.clone()));
            saved.push((format!("gradient/Net_fc{index}.bias"), vec![layer.outputs as u64], bias.clone()));
            if index >= self.frozen {
                layer.weights.iter_mut().zip(&weights).for_each(|(value, gradient)| *value -= rate * gradient);
                layer.bias.iter_mut().zip(&bias).for_each(|(value, gradient)| *value -= rate * gradient);
            }
            slopes = below;
        }
        saved
    }
}

impl Layer {
    fn shape(&self) -> Vec<u64> {
        vec![self.outputs as u64, self.inputs as u64]
    }

    fn forward(&self, below: &[f32]) -> Vec<f32> {
        let mut sums = Vec::with_capacity(BATCH * self.outputs);
        for sample in below.chunks_exact(self.inputs) {
            for (row, bias) in self.weights.chunks_exact(self.inputs).zip(&self.bias) {
                sums.push(bias + row.iter().zip(sample).map(|(weight, value)| weight * value).sum::<f32>());
            }
        }
        sums
    }

    /// Gradients of the weights, of the bias and of what came from below.
    fn backward(&self, below: &[f32], slopes: &[f32]) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let mut weights = vec![0.0; self.weights.len()];
        let mut bias = vec![0.0; self.outputs];
        let mut down = vec![0.0; below.len()];
        for (sample, slopes) in slopes.chunks_exact(self.outputs).enumerate() {
            for (output, slope) in slopes.iter().enumerate() {
                bias[output] += slope;
                for input in 0..self.inputs {
                    weights[output * self.inputs + input] += slope * below[sample * self.inputs + input];
                    down[sample * self.inputs + input] += slope * self.weights[output * self.inputs + input];
                }
            }
        }
        (weights, bias, down)
    }
}

/// Mean loss, and its gradient by the outputs.
fn cross_entropy(outputs: &[f32], labels: &[usize], classes: usize) -> (f32, Vec<f32>) {
    let (mut loss, mut slopes) = (0.0, Vec::with_capacity(outputs.len()));
    for (scores, label) in outputs.chunks_exact(classes).zip(labels) {
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = scores.iter().map(|score| (score - highest).exp()).sum();
        loss += total.ln() + highest - scores[*label];
        for (class, score) in scores.iter().enumerate() {
            let expected = f32::from(u8::from(class == *label));
            slopes.push(((score - highest).exp() / total - expected) / labels.len() as f32);
        }
    }
    (loss / labels.len() as f32, slopes)
}
