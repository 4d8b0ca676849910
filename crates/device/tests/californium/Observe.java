// Observes a resource with Californium until there were as many notifications as asked for. Prints each
// representation in hexadecimal digits.

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapHandler;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.config.UdpConfig;

public class Observe {
    public static void main(String[] arguments) throws Exception {
        CoapConfig.register();
        UdpConfig.register();
        Configuration.setStandard(new Configuration(CoapConfig.DEFINITIONS, UdpConfig.DEFINITIONS));
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[1]));
        CoapClient client = new CoapClient(arguments[0]);
        client.observe(new CoapHandler() {
            @Override
            public void onLoad(CoapResponse response) {
                StringBuilder digits = new StringBuilder();
                for (byte value : response.getPayload()) {
                    digits.append(String.format("%02x", value));
                }
                System.out.println(digits);
                left.countDown();
            }

            @Override
            public void onError() {
                System.err.println("the observation failed");
                System.exit(1);
            }
        });
        System.exit(left.await(20, TimeUnit.SECONDS) ? 0 : 1);
    }
}
